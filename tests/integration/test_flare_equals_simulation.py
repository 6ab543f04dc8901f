"""Real processes: three rounds of every method over mutual TLS equal three rounds in simulation."""

from collections.abc import Iterator

import pytest
import torch

from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.run import read_members
from fedminmax.network.site.journal import KEPT_FOLDER
from fedminmax.network.wire.messages import vector_from_bytes
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.integration.trained_federation import TrainedFederation, trained_federation
from tests.network.network_problem import SITES, simulate, simulated_members

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
KEYS = list(CARDS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedFederation]:
    """A federation of real processes that has run every method."""
    with trained_federation(tmp_path_factory.mktemp("federation"), KEYS) as running:
        yield running


@pytest.mark.parametrize("number", range(len(KEYS)), ids=KEYS)
def test_the_network_gives_the_simulations_numbers(number: int, trained: TrainedFederation) -> None:
    torch.testing.assert_close(
        read_members(trained.run_folder(number)),
        simulated_members(trained.folder, trained.plan, number, fused=True),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("number", range(len(KEYS)), ids=KEYS)
def test_every_round_is_seen_live_and_kept_with_who_took_part(
    number: int, trained: TrainedFederation
) -> None:
    rounds = read_rounds(trained.run_folder(number) / ROUNDS_FILE)
    assert [live.round for live in trained.seen if live.run == number] == rounds
    assert [entry.round for entry in rounds] == [1, 2, 3]
    assert all(entry.sites.took_part == SITES and not entry.sites.refused for entry in rounds)


def test_what_sites_keep_is_the_simulations_and_stays_with_them(trained: TrainedFederation) -> None:
    number = KEYS.index("ditto")
    *_, last = simulate(trained.folder, trained.plan, number, fused=False)
    for place, site in enumerate(SITES):
        folder = trained.federation.kits.sites[site] / KEPT_FOLDER / f"test-{number}"
        own = last.progress.kept[place]
        kept = vector_from_bytes((folder / "round-3.safetensors").read_bytes(), own, site)
        torch.testing.assert_close(kept, own, rtol=1e-9, atol=1e-9)
