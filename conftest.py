"""Examples in docstrings are tests, too; a file that has none is not imported for them."""

from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only where there can be one: every worker would import all files."""
    collectors = yield
    if file_path.suffix == ".py" and b">>>" in file_path.read_bytes():
        return collectors
    return [found for found in collectors if not isinstance(found, DoctestModule)]
