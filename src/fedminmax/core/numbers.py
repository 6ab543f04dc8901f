"""What counts as a number where users give one: Python's own and numpy's, but no truth values."""

import math
from numbers import Integral, Real


def is_whole(value: object, least: int) -> bool:
    """Tell whether a value is a whole number of at least ``least``.

    >>> is_whole(3, 1), is_whole(3.0, 1), is_whole(True, 1), is_whole("3", 1)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def is_finite(value: object) -> bool:
    """Tell whether a value is a finite number.

    >>> is_finite(0.5), is_finite(math.nan), is_finite("0.5"), is_finite(None)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def in_words(value: object) -> str:
    """Return a value as it is told in an error: numbers short, and texts in quotes."""
    return f"{value:g}" if isinstance(value, float) else repr(value)
