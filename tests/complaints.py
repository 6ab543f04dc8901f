"""What a user's mistake must look like: an InputError of one line."""

from collections.abc import Callable

import pytest

from fedminmax.core.errors import InputError


def complaint_of(action: Callable[[], object]) -> str:
    """Return the message with which the library refuses, which must be a single line."""
    with pytest.raises(InputError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) > 20
    return message
