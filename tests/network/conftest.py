"""What tests of several rooms of the network begin with."""

from pathlib import Path

import pytest

from fedminmax.config.read import TableConfig, read_config
from tests.network.network_problem import write_tables


@pytest.fixture
def config(tmp_path: Path) -> TableConfig:
    return read_config(write_tables(tmp_path))
