"""No honest reply is refused, however much the weights of groups and sites differ.

All methods over hundreds of rounds: ``python -m benchmarks.lying_site --honest``.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.config.sections import ModelSection
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.agree import agree
from fedminmax.network.server.remote import RemoteFederation
from fedminmax.network.server.sites import PlainSites
from fedminmax.training.train import train
from tests.network.network_problem import (
    WOMEN,
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

# South is the only site of the women, or one of two.
SHARES = {"mixed": WOMEN, "single": {"north": 0.0, "south": 1.0, "west": 0.0}}
# Their weights soon differ by many orders between groups and sites, and from round to round.
LONG = {
    "group-term": {"tilt": "300"},
    "stochastic-afl": {"learning_rate": "5"},
    "term": {"tilt": "30", "group_tilt": "30", "epochs": "1"},
    "qfedavg": {"q": "10", "epochs": "1"},
}
MODELS = {
    "brier": ModelSection("logistic", (), "brier"),
    "cross_entropy": ModelSection("logistic", (), "cross_entropy", ridge=0.3),
    "network": ModelSection("mlp", (3,), "cross_entropy"),
}


def train_over_bytes(
    folder: Path, run: PlannedRun, sites: str, model: ModelSection = MODELS["brier"]
) -> None:
    """Every round takes all replies, and the run ends with the simulation's model."""
    config = read_config(write_tables(folder, SHARES[sites], rows_as=3))
    plan = replace(plan_of(config, [run]), model=model)
    asked = PlainSites(plan, DirectTransport(folder))
    federation = RemoteFederation(agree(plan, asked, folder), asked, 0, folder / "notice")
    members = federation.initial_parameters
    for done in train(federation, run.build(), rounds=run.rounds, seed=plan.seed):
        assert federation.take_notes().refused == {}
        members = done.members
    assert torch.equal(members, simulated_members(folder, plan, 0, fused=False))


@pytest.mark.parametrize("sites", SHARES)
@pytest.mark.parametrize("key", LONG)
def test_in_a_long_run(key: str, sites: str, tmp_path: Path) -> None:
    train_over_bytes(tmp_path, PlannedRun(key, LONG[key], 60), sites)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("key", CARDS)
def test_with_every_method(key: str, model: str, tmp_path: Path) -> None:
    options = {"epochs": "2"} if "epochs" in CARDS[key].option_types else {}
    train_over_bytes(tmp_path, PlannedRun(key, options, 4), "single", MODELS[model])


@pytest.mark.parametrize("key", ["fedminmax-fast", "afl-fast", "fedavg-fast"])
def test_of_a_network_that_starts_from_a_linear_model(key: str, tmp_path: Path) -> None:
    """Some rounds of second order come before those of the network."""
    run = PlannedRun(key, {"linear_start": "true"}, 12)
    train_over_bytes(tmp_path, run, "mixed", ModelSection("mlp", (8, 9), "cross_entropy"))
