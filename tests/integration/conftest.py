"""What takes long to start is started once for a whole file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedminmax.network.flare.local import LocalFederation, local_federation
from fedminmax.network.site.settings import SiteSettings
from tests.integration.other_code_at_south import HeldRounds
from tests.integration.trained_federation import TrainedFederation, trained_federation
from tests.network.network_problem import SITES, write_tables


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedFederation]:
    """A federation of real processes that has run a method."""
    with trained_federation(tmp_path_factory.mktemp("federation"), ["fedminmax"]) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small tables and their configuration, for one file of tests."""
    path = tmp_path_factory.mktemp("tables")
    write_tables(path)
    return path


@pytest.fixture(scope="module")
def federation(folder: Path) -> Iterator[LocalFederation]:
    """A federation of real processes for one file of tests, which may do with it what it likes."""
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in SITES}
    with local_federation(folder / "kits", tables) as running:
        yield running


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldRounds]:
    """The rounds in which one site waits, for all federations that this file starts from now on."""
    rounds = HeldRounds(tmp_path_factory.mktemp("held"))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in rounds.variables.items():
            environment.setenv(name, value)
        yield rounds
