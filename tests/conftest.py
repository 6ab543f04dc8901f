"""What all tests share: the same examples everywhere, no clock, nothing left behind."""

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests.experiments.small_fashion import use_excerpt

settings.register_profile(
    "fedminmax", deadline=None, derandomize=True, database=None, max_examples=50
)
settings.load_profile("fedminmax")

# The tensors are tiny: threads inside an operation would only wait for one another.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is as wide as its texts, whoever runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def _fashion_excerpt(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ``usefixtures``: FashionMNIST is the excerpt that comes with the tests."""
    use_excerpt(monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def _blame_for_forgotten_processes() -> Iterator[None]:
    """A process that nobody waited for is complained of in the file that started it.

    Its ``Popen`` may be part of a cycle, and would be collected during anybody's test.
    """
    yield
    if _has_children():
        gc.collect()


def _has_children() -> bool:
    """Tell whether this process has children, alive or not; where one cannot ask, it may."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
