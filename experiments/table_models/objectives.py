"""Compare the two objectives, the highest risk and the highest excess, with the default tolerance.

    python -m experiments.table_models.objectives --data FOLDER --out objectives.jsonl
    python -m experiments.table_models.objectives --summary

Additive models with the product's defaults but for the objective; all models of a seed have the
same records and the same class of models. A line has one model's risks by group (the training
loss), those of the plain model, what each group's own model would gain, and for how many groups
misses or false alarms clearly changed against the plain model: paired differences on test records
whose intervals hold at once for all groups with at least 30 such records and both kinds (95%).

The highest excess on test records is that of a group's change from the plain model plus its gain:
so the plain model's luck with a group's test records does not count.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import torch
from torch import Tensor, nn

from experiments.table_models.near_minimax import (
    MAX_ROUNDS,
    MIN_ROWS,
    losses_of,
    prepared,
)
from experiments.table_models.tables import Problem, table
from fedminmax.core.examples import Examples
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast, Objective
from fedminmax.methods.shared.servers import own_risks_of
from fedminmax.training.train import fit

TABLES = ("adult", "heart", "star", "math_achieve", "acs")
TOLERANCE = 0.005
METHODS: dict[str, Any] = {
    "plain": FedAvgFast(),
    "excess": FedMinMaxFast(tolerance=TOLERANCE, objective=Objective.EXCESS),
    "risk": FedMinMaxFast(tolerance=TOLERANCE),
    "risk, exact": FedMinMaxFast(),
}


def lines_of(name: str, problem: Problem, seed: int) -> Iterator[dict[str, Any]]:
    """Train all models of a table and seed."""
    known = prepared(problem, seed)
    parts = known.parts
    plain, gains = nn.Module(), [0.0]
    for label, method in METHODS.items():
        done = fit(known.federation, method, rounds=MAX_ROUNDS)
        model = done.model()
        plain = model if label == "plain" else plain
        own = own_risks_of(done.progress.state)
        if own is not None:
            gains = [before - after for before, after in zip(own.plain, own.own, strict=True)]
        line = {
            part: _by_group(losses_of(model, known.loss, rows), rows)
            for part, rows in parts.items()
        }
        harms, helped = _clear_changes(plain, model, parts["test"], classes=known.outputs)
        yield {
            "table": name,
            "seed": seed,
            "model": label,
            "rounds": done.number,
            "train_records": torch.bincount(parts["train"].group).tolist(),
            "test_records": torch.bincount(parts["test"].group).tolist(),
            "gains": gains if own is not None else None,
            "harms": harms,
            "helped": helped,
            **line,
        }


def _by_group(losses: Tensor, rows: Examples) -> dict[str, Any]:
    counts = torch.bincount(rows.group).clamp(min=1)
    groups = torch.bincount(rows.group, weights=losses) / counts
    return {"mean": float(losses.mean()), "groups": groups.tolist()}


def _clear_changes(
    plain: nn.Module, model: nn.Module, rows: Examples, *, classes: int
) -> tuple[int, int]:
    """Return for how many groups and kinds the model is clearly worse, and clearly better."""
    if classes != 2:
        return 0, 0
    with torch.no_grad():
        before, after = (own(rows.x).argmax(dim=1) for own in (plain, model))
    worse = (after != rows.y).double() - (before != rows.y).double()
    found = [
        worse[(rows.group == group) & (rows.y == kind)]
        for group in torch.unique(rows.group).tolist()
        for kind in (0, 1)
    ]
    compared = [own for own in found if len(own) >= MIN_ROWS]
    quantile = NormalDist().inv_cdf(1.0 - 0.025 / max(len(compared), 1))
    scores = [
        float(own.mean()) / max(float(own.std()) / math.sqrt(len(own)), 1e-12) for own in compared
    ]
    return sum(one > quantile for one in scores), sum(one < -quantile for one in scores)


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table: a line per table and model, means over seeds."""
    yield (
        "| table (seeds) | model | rounds | highest excess, training | highest excess, test | "
        "worst risk, test | mean, test | clear harms | clear gains |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(line["table"] for line in lines):
        seeds = {line["seed"] for line in lines if line["table"] == name}
        of_table = {(own["seed"], own["model"]): own for own in lines if own["table"] == name}
        for label in METHODS:
            cells = [_cells(of_table, seed, label) for seed in sorted(seeds)]
            means = [fmean(own) for own in zip(*cells, strict=True)]
            rounds, *risks, harms, helped = means
            shown = " | ".join(f"{risk:.4f}" for risk in risks)
            yield (
                f"| {name} ({len(seeds)}) | {label} | {rounds:.1f} | {shown} | "
                f"{harms * len(cells):.0f} | {helped * len(cells):.0f} |"
            )


def _cells(lines: dict[tuple[int, str], dict[str, Any]], seed: int, label: str) -> list[float]:
    line, plain = lines[seed, label], lines[seed, "plain"]
    gains = lines[seed, "excess"]["gains"]
    excess = []
    for part in ("train", "test"):
        enough = [rows >= MIN_ROWS for rows in line[f"{part}_records"]]
        own = zip(line[part]["groups"], plain[part]["groups"], gains, enough, strict=True)
        excess.append(max(risk - before + gain for risk, before, gain, large in own if large))
    worst = max(
        risk
        for risk, rows in zip(line["test"]["groups"], line["test_records"], strict=True)
        if rows >= MIN_ROWS
    )
    mean, harms, helped = line["test"]["mean"], line["harms"], line["helped"]
    return [line["rounds"], *excess, worst, mean, harms, helped]


def main() -> None:
    """Train what is not in the file yet, or print its summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "objectives.jsonl")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    if given.summary:
        print("\n".join(summary([json.loads(line) for line in lines])))
        return
    known = {(line["table"], line["seed"]) for line in map(json.loads, lines)}
    for seed in given.seeds:
        for name in given.tables:
            if (name, seed) in known:
                continue
            found = list(lines_of(name, table(name, seed, given.data), seed))
            with given.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
