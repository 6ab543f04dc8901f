"""Rounds to the paper's numbers with networks, and what each ingredient of the server is worth.

The targets are what Algorithm 1 reached in many more rounds: on the synthetic rows its worst
training risk in round 1,000 (experiments/synthetic/full), on 6,000 images of FashionMNIST that of
round 1,150 (experiments/fashion_mnist/rows_6000), on Adult that of round 3,000.
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablated_server import AblatedServer
from benchmarks.rounds_linear import ADULT_ROUND_3000
from benchmarks.target_rows import SETTINGS, Reached, Target, reach
from experiments.paper.fashion import fashion_study
from experiments.paper.fashion_mnist import (
    find_fashion_mnist,
    folders_to_search,
    load_fashion_mnist,
)
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS
from fedminmax.data.adult import load_adult
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import LocalMethod
from fedminmax.studies.study import RunPlan, Study, StudyConfig, rows_of_sites, synthetic_study
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round

SITES = 40
# Worst training risk of Algorithm 1 in round 1,000, by fold:
# python -m experiments.paper synthetic --model mlp --settings ESG --methods fedminmax
ALGORITHM_1_RISKS = (0.4607143446803093, 0.4493556990424792, 0.4488505887389183)
FASHION_ROUND_1150 = 0.26
VARIANTS: dict[str, LocalMethod[Any]] = {
    "": FedMinMaxFast(curvature=False),
    ", starts at rate 0.1": FedMinMaxFast(curvature=False, learning_rate=0.1),
    ", without momentum": FedMinMaxFast(curvature=False, momentum=0.0),
    ", without the metric": AblatedServer(metric=False),
    ", weights from the last risks": AblatedServer(look_ahead=False),
    ", rate 0.001 throughout": AblatedServer(chooses_rate=False),
    ", rate 0.03 throughout": AblatedServer(chooses_rate=False, learning_rate=0.03),
}


def synthetic(seeds: range) -> Iterator[Reached]:
    """The paper's MLP on 6,000 synthetic rows."""
    study = synthetic_study(StudyConfig(6000, SITES, model="mlp", widths=(512,) * 4))
    for seed in seeds:
        target = Target("Algorithm 1's round 1,000", ALGORITHM_1_RISKS[seed], 60)
        for setting in SETTINGS:
            federation = study.federation(_plan(setting, seed))
            task = ("synthetic, MLP 4x512", setting, seed)
            yield from reach(task, federation, FedMinMaxFast(), (target,), _lowest)


def fashion_6000(seeds: range) -> Iterator[Reached]:
    """The paper's CNN on 6,000 images."""
    study = _fashion(6000)
    target = Target("worst training risk 0.26", FASHION_ROUND_1150, 50)
    for seed in seeds:
        federation = study.federation(_plan("ESG", seed))
        task = ("FashionMNIST 6,000, CNN", "ESG", seed)
        yield from reach(task, federation, FedMinMaxFast(), (target,), _lowest)


def fashion_60000(seeds: range) -> Iterator[Reached]:
    """The paper's CNN on all images: the worst test group of the round that validation chose.

    Test images are looked at once, after the last round: they choose nothing.
    """
    study = _fashion(60_000)
    target = Target("worst test group 0.315", 0.315, 100)
    for seed in seeds:
        federation = study.federation(_plan("ESG", seed, DEFAULT_SHARE_FOR_NETWORKS))
        task = ("FashionMNIST 60,000, CNN, chosen by validation rows", "ESG", seed)
        reading = partial(_worst_test_group, study, federation, target.max_rounds)
        yield from reach(task, federation, FedMinMaxFast(), (target,), reading)


def adult_first_order(seeds: range) -> Iterator[Reached]:
    """Adult with the networks' server: curvature switched off, and one ingredient at a time."""
    rows = load_adult().train
    target = Target("Algorithm 1's round 3,000", ADULT_ROUND_3000, 100)
    for seed in seeds:
        torch.manual_seed(seed)
        model = linear(rows.x.shape[1], 2)
        for setting in SETTINGS:
            parts = rows_of_sites(setting, rows.group, SITES, seed)
            sites = [(rows.x[part], rows.y[part], rows.group[part]) for part in parts]
            federation = Simulation(model, brier_loss, sites)
            for name, method in VARIANTS.items():
                if name and setting != "ESG":
                    continue
                task = (f"Adult, Brier, first order{name}", setting, seed)
                yield from reach(task, federation, method, (target,), _lowest)


def _lowest(done: Round[Any]) -> float:
    """The worst training risk of the round's answer."""
    return float(done.progress.state.level)


def _worst_test_group(
    study: Study, federation: Simulation, last_round: int, done: Round[Any]
) -> float:
    if done.number < last_round:
        return math.inf
    return max(study.scores(federation.model(done.members[0])).risks)


def _fashion(rows: int) -> Study:
    folder = find_fashion_mnist(folders_to_search(None), Path())
    if folder is None:
        raise SystemExit("no FashionMNIST here; run: python -m experiments.paper fashion-mnist")
    config = StudyConfig(rows, SITES, model="cnn", widths=(16, 32))
    return fashion_study(config, load_fashion_mnist(folder))


def _plan(setting: str, fold: int, validation: float = 0.0) -> RunPlan:
    return RunPlan(setting, FedMinMaxFast(), fold, rounds=1, cost=0, validation=validation)
