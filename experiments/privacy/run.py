"""Adult under a privacy guarantee: worst and mean test risk against epsilon, three methods.

    python -m experiments.privacy.run --out experiments/privacy

writes ``risks.jsonl``, a line per run, and goes on where it stopped; then ``table.md`` and the
figure from that file.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from fedminmax.core.files import read_lines, write_text
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear
from fedminmax.core.privacy.mechanism import Privacy, default_clip
from fedminmax.core.text import markdown_table
from fedminmax.data.adult import CATEGORIES, CLASS_NAMES, NUMBERS, Adult, load_adult
from fedminmax.data.partition import partition_equally
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.report.style import new_figure, plain_axes, save_figure, series_style
from fedminmax.studies.scores import score_by_group
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

SITES, DELTA, SEEDS = 40, 1e-5, (0, 1, 2)
# Infinite is without noise, and then with the methods' own defaults.
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, float("inf"))
# Groups of fewer training rows are no worst group here: no such promise leaves much of them.
MIN_ROWS = 500
ROUNDS = {"FedMinMaxFast": (20, 100), "FedMinMax": (300, 500), "FedAvgFast": (20, 100)}
METHODS: dict[tuple[str, bool], AnyMethod[Any]] = {
    (own.name, private): own
    for private in (True, False)
    for own in (
        FedMinMaxFast(curvature=not private),
        FedMinMax(),
        FedAvgFast(curvature=not private),
    )
}


@dataclass(frozen=True)
class Run:
    """One run's test risks: of the worst group, and over all rows."""

    method: str
    epsilon: float
    seed: int
    rounds: int
    worst: float
    mean: float
    worst_train: float


def run_once(data: Adult, name: str, epsilon: float, seed: int) -> Run:
    """Train one model and score it."""
    rows, private = data.train, epsilon < float("inf")
    method, rounds = METHODS[name, private], ROUNDS[name][0 if private else 1]
    model = linear(len(data.feature_names), len(CLASS_NAMES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    clip = default_clip(brier_loss, len(NUMBERS) + len(CATEGORIES))
    federation = Simulation(
        model,
        brier_loss,
        [
            (rows.x[part], rows.y[part], rows.group[part])
            for part in partition_equally(rows.group, SITES, seed)
        ],
        group_names=data.group_names,
        minimum_group=MIN_ROWS,
        seed=seed,
        privacy=Privacy(epsilon, DELTA, clip=clip, rounds=rounds) if private else None,
    )
    *_, last = train(federation, method, rounds=rounds, seed=seed)
    groups = len(data.group_names)
    counts = torch.bincount(rows.group, minlength=groups)
    large = (counts >= MIN_ROWS).nonzero().squeeze(1).tolist()
    test = score_by_group(last.model(), data.test, groups).risks
    own = score_by_group(last.model(), rows, groups).risks
    shares = torch.bincount(data.test.group, minlength=groups) / len(data.test)
    return Run(
        name,
        epsilon,
        seed,
        last.number,
        max(test[group] for group in large),
        float(shares.double() @ torch.tensor(test, dtype=torch.float64)),
        max(own[group] for group in large),
    )


def runs_of(runs: list[Run], method: str, epsilon: float) -> list[Run]:
    """Return the runs of all seeds."""
    return [run for run in runs if (run.method, run.epsilon) == (method, epsilon)]


def spread(values: list[float]) -> str:
    """Say mean and deviation."""
    return f"{fmean(values):.4f} +- {stdev(values):.4f}"


def write_table(folder: Path, runs: list[Run]) -> None:
    """Write risks against epsilon, a line for each."""
    names = list(ROUNDS)
    header = ["epsilon", *(f"{name}, {what}" for what in ("worst", "mean") for name in names)]
    lines = [
        [
            "none" if epsilon == float("inf") else f"{epsilon:g}",
            *(spread([run.worst for run in runs_of(runs, name, epsilon)]) for name in names),
            *(spread([run.mean for run in runs_of(runs, name, epsilon)]) for name in names),
        ]
        for epsilon in EPSILONS
    ]
    write_text(folder / "table.md", markdown_table(header, lines) + "\n")


def draw(folder: Path, runs: list[Run]) -> None:
    """Draw the table: worst group on the left, all rows on the right."""
    with new_figure(7.0, 3.0) as figure:
        panels = figure.subplots(1, 2)
        for panel, what in zip(panels, ("worst", "mean"), strict=True):
            for number, name in enumerate(ROUNDS):
                style = series_style(number)
                values = [
                    [
                        getattr(run, what)
                        for run in runs
                        if (run.method, run.epsilon) == (name, epsilon)
                    ]
                    for epsilon in EPSILONS
                ]
                panel.errorbar(
                    range(len(EPSILONS)),
                    [fmean(own) for own in values],
                    [stdev(own) for own in values],
                    label=name,
                    color=style.colour,
                    marker=style.marker,
                    capsize=2,
                )
            panel.set_xticks(
                range(len(EPSILONS)), [f"{own:g}".replace("inf", "none") for own in EPSILONS]
            )
            panel.set_xlabel("epsilon")
            panel.set_ylabel({"worst": "worst group's test risk", "mean": "mean test risk"}[what])
            plain_axes(panel, "y")
        panels[0].legend(frameon=False)
        save_figure(figure, folder / "risk_against_epsilon")


def main() -> None:
    """Run what is missing, then write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/privacy"))
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "risks.jsonl"
    lines = read_lines(path) if path.exists() else []
    runs = [Run(**json.loads(line)) for line in lines]
    done = {(run.method, run.epsilon, run.seed) for run in runs}
    data = load_adult()
    for epsilon in EPSILONS:
        for name in ROUNDS:
            for seed in SEEDS:
                if (name, epsilon, seed) not in done:
                    run = run_once(data, name, epsilon, seed)
                    runs.append(run)
                    write_text(path, "".join(f"{json.dumps(asdict(own))}\n" for own in runs))
    write_table(folder, runs)
    draw(folder, runs)


if __name__ == "__main__":
    main()
