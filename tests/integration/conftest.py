"""What takes long to start is started once for all files."""

from collections.abc import Iterator

import pytest

from tests.integration.trained_federation import TrainedFederation, trained_federation


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedFederation]:
    """A federation of real processes that has run every method."""
    with trained_federation(tmp_path_factory.mktemp("federation")) as running:
        yield running
