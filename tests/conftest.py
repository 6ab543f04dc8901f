"""Property tests draw the same examples everywhere, and no clock can fail them."""

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile(
    "fedminmax", deadline=None, derandomize=True, database=None, max_examples=50
)
settings.load_profile("fedminmax")

# The tensors are tiny: threads inside an operation would only wait for one another.
torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _blame_for_forgotten_processes() -> Iterator[None]:
    """A process that nobody waited for is complained of in the file that started it.

    Its ``Popen`` may be part of a cycle, and would be collected during anybody's test.
    """
    yield
    if _has_children():
        gc.collect()


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
