"""Does AFLFast minimise what AFL minimises? The worst site's training risk of both.

Both methods train on the same rows of the same sites from the same model, without validation
rows. The risks are computed here, site by site, and not taken from the methods' own sums.
Printed are the first rounds of both, and then the model that AFLFast ends with beside the iterates
of the long runs of AFL in ``rows_6000``.

    python -m experiments.fashion_mnist.afl_objective
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from experiments.paper.fashion import fashion_study
from experiments.paper.fashion_mnist import choose_rows, fashion_mnist
from fedminmax import Iterate, train
from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.methods import AFL, AFLFast
from fedminmax.studies.finish import run_folder
from fedminmax.studies.study import RunPlan, StudyConfig, StudyMethod, rows_of_sites
from fedminmax.training.checkpoint import restore
from fedminmax.training.simulation import Simulation

AFL_RUNS = Path(__file__).parent / "rows_6000"


@dataclass(frozen=True, eq=False)
class WorstSite:
    """AFL's objective on the rows of these sites, by its definition."""

    sites: list[Examples]

    def risk(self, model: nn.Module) -> float:
        """Return the mean loss of the site with the highest one."""
        with torch.no_grad():
            return max(
                float(brier_loss(model(rows.x), rows.y).double().mean()) for rows in self.sites
            )


def config_of_long_runs() -> StudyConfig:
    """Return the configuration of AFL's long runs."""
    content = json.loads((AFL_RUNS / "results.json").read_text())["config"]
    return StudyConfig(
        content["rows"],
        content["sites"],
        model="cnn",
        widths=tuple(content["channels"]),
        seed=content["seed"],
    )


def plan_of(setting: str, method: StudyMethod) -> RunPlan:
    """Return the plan of the first fold, without validation rows."""
    return RunPlan(setting, method, 0, rounds=1, cost=0)


def first_rounds(
    federation: Simulation, method: StudyMethod, rounds: int, seed: int
) -> list[Tensor]:
    """Return the models that the method tries in its first rounds, as vectors."""
    return [
        done.parameters(Iterate.LAST)
        for done in train(federation, method, rounds=rounds, seed=seed)
    ]


def main() -> None:
    """Train AFLFast and the first rounds of AFL in every setting and print both objectives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", default=["ESG", "SSG", "PSG"])
    parser.add_argument("--first", type=int, default=10, help="first rounds to compare")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of AFLFast")
    options = parser.parse_args()
    config = config_of_long_runs()
    data = fashion_mnist(None)
    study = fashion_study(config, data)
    seed = study.fold_seed(0)
    rows = choose_rows(data.train, config.rows, seed)
    for setting in options.settings:
        parts = rows_of_sites(setting, rows.group, config.sites, seed)
        objective = WorstSite([rows.rows(part) for part in parts])
        afl, fast = AFL(0.1, 0.1), AFLFast()
        federation = study.federation(plan_of(setting, fast))
        print(f"{setting}: worst site's training risk, AFL and AFLFast", flush=True)
        slow = first_rounds(federation, afl, options.first, seed)
        for number, done in enumerate(
            train(federation, fast, rounds=options.rounds, seed=seed), start=1
        ):
            if number <= options.first:
                risks = [
                    objective.risk(federation.model(one))
                    for one in (slow[number - 1], done.parameters(Iterate.LAST))
                ]
                print(f"  round {number:5} {risks[0]:.4f} {risks[1]:.4f}", flush=True)
            if number == options.rounds:
                print(f"  AFLFast, round {number}: {objective.risk(done.model()):.4f}", flush=True)
        folder = run_folder(AFL_RUNS, plan_of(setting, afl))
        progress, _ = restore(folder, federation, afl)
        if progress is None:
            print(f"  no run of AFL in {folder}")
            continue
        for which in (Iterate.LAST, Iterate.TAIL_AVERAGE, Iterate.AVERAGE):
            risk = objective.risk(federation.model(progress.iterates.parameters(which)))
            print(f"  AFL, round {progress.round}, {which.value}: {risk:.4f}", flush=True)


if __name__ == "__main__":
    main()
