"""Compare ways to trade the worst group's risk for the mean: tolerances and kept shares.

    python -m experiments.table_models.near_minimax --data FOLDER --out near_minimax.jsonl
    python -m experiments.table_models.near_minimax --summary

Additive models, the product's defaults but for the trade. A line has training and test risks of one
model; all models of a seed have the same records and the same class of models. ``quarter`` and
``half`` are tolerances of that part of the standard error of the worst risk at the exact minimax
model, within 0.05% and 1%.

Seeds 0 to 4 are of Adult, the census (19 states) and the two tables of schools. Seeds 10 to 14 are
of all sixteen tables: what is chosen by these is measured on the others.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.table_models.ours import ADDITIVE, configuration
from experiments.table_models.tables import NAMES, Problem, table
from fedminmax.config.read import read_config
from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.runs.plan import federate, with_class
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit

MIN_ROWS, MAX_ROUNDS, CHUNK = 30, 200, 20_000
TOLERANCES, KEPT = (0.0025, 0.005, 0.0075, 0.01, 0.02), 0.3
ERRORS = {"quarter": 0.25, "half": 0.5}
TABLES, OTHERS = ("adult", "star", "math_achieve", "acs"), range(10, 15)


def losses_of(model: torch.nn.Module, loss: str, rows: Examples) -> Tensor:
    """Return the loss of every record, in float64."""
    with torch.no_grad():
        parts = [LOSSES_BY_NAME[loss](model(x), y) for x, y in _chunks(rows)]
    return torch.cat(parts).double()


def _chunks(rows: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(torch.split(rows.x, CHUNK), torch.split(rows.y, CHUNK), strict=True)


def risks_of(losses: Tensor, rows: Examples) -> dict[str, float]:
    """Return the mean, and the highest risk of a group with enough records."""
    counts = torch.bincount(rows.group)
    sums = torch.bincount(rows.group, weights=losses)
    large = counts >= MIN_ROWS
    groups = (sums / counts)[large]
    return {"mean": float(losses.mean()), "worst": float(groups.max())}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A table's federation with its class of models agreed, its loss, and records by part."""

    federation: Simulation
    loss: str
    outputs: int
    parts: dict[str, Examples]


def prepared(problem: Problem, seed: int) -> Prepared:
    """Hold out 30% of the records and agree on the class of models, as `train` does."""
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.frame.write_csv(Path(place) / "train.csv")
        text = configuration(problem, ADDITIVE, seed).replace("held_out = 0.0", "held_out = 0.3")
        path = Path(place) / "fedminmax.toml"
        path.write_text(text, encoding="utf-8")
        config = read_config(path)
        tables, chosen = with_class(config, load_federated_tables(config))
        federation = federate(config, tables, "cpu", None, chosen)
    parts = {
        "train": concatenate([part.examples for part in tables.train if len(part.examples)]),
        "test": concatenate([part.examples for part in tables.test if len(part.examples)]),
    }
    return Prepared(federation, config.model.loss, tables.encoding.outputs, parts)


def lines_of(name: str, problem: Problem, seed: int) -> Iterator[dict[str, Any]]:
    """Train all models of a table and seed."""
    known = prepared(problem, seed)
    parts = known.parts
    methods: dict[str, Any] = {
        "plain": FedAvgFast(),
        "exact": FedMinMaxFast(),
        f"keep_share {KEPT}": FedMinMaxFast(keep_share=KEPT),
        **{f"tolerance {own}": FedMinMaxFast(tolerance=own) for own in TOLERANCES},
    }
    for label in (*methods, *ERRORS):
        method = methods[label]
        done = fit(known.federation, method, rounds=MAX_ROUNDS)
        model = done.model()
        losses = {own: losses_of(model, known.loss, rows) for own, rows in parts.items()}
        if label == "exact":
            error = _standard_error(losses["train"], parts["train"], done.weights)
            for own, part in ERRORS.items():
                share = float(np.clip(part * error, 0.0005, 0.01))
                methods[own] = FedMinMaxFast(tolerance=share)
        yield {
            "table": name,
            "seed": seed,
            "model": label,
            "tolerance": getattr(method, "tolerance", None),
            "rounds": done.number,
            "gap": None if done.certificate is None else done.certificate.gap,
            **{own: risks_of(losses[own], rows) for own, rows in parts.items()},
        }


def _standard_error(losses: Tensor, rows: Examples, weights: Tensor) -> float:
    """Return the standard error of the worst risk, as a share of it."""
    squared, value = 0.0, 0.0
    for group, weight in enumerate(weights.tolist()):
        own = losses[rows.group == group]
        if weight:
            squared += weight**2 * float(own.var(correction=0)) / len(own)
            value += weight * float(own.mean())
    return float(np.sqrt(squared)) / value


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table: what a trade avoids of the cost in the mean, and what test records show."""
    found = {(line["table"], line["seed"], line["model"]): line for line in lines}
    labels = [own for own in dict.fromkeys(line["model"] for line in lines) if own != "plain"]
    yield f"| table (seeds) | {' | '.join(labels)} |"
    yield "|---" * (len(labels) + 1) + "|"
    for name, is_other in dict.fromkeys((own["table"], own["seed"] in OTHERS) for own in lines):
        seeds = sorted({seed for table, seed, _ in found if table == name})
        seeds = [seed for seed in seeds if (seed in OTHERS) is is_other]
        cells = [
            _cell([[found[name, seed, own] for own in ("plain", "exact", label)] for seed in seeds])
            for label in labels
        ]
        yield f"| {name} ({seeds[0]} to {seeds[-1]}) | {' | '.join(cells)} |"


def _cell(models: list[list[dict[str, Any]]]) -> str:
    """Return the share avoided, the changes of worst and mean test risk, rounds and tolerance."""
    avoided, worst, mean = [], [], []
    for plain, exact, own in models:
        cost = exact["train"]["mean"] - plain["train"]["mean"]
        avoided.append((exact["train"]["mean"] - own["train"]["mean"]) / cost)
        worst.append(own["test"]["worst"] / exact["test"]["worst"] - 1.0)
        mean.append(own["test"]["mean"] / exact["test"]["mean"] - 1.0)
    rounds = fmean(own["rounds"] for _, _, own in models)
    tolerance = fmean(own["tolerance"] or 0.0 for _, _, own in models)
    return (
        f"{fmean(avoided):.0%}: {fmean(worst):+.1%} / {fmean(mean):+.1%}, {rounds:.1f} rounds, "
        f"{tolerance:.2%}"
    )


def main() -> None:
    """Train what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "near_minimax.jsonl")
    parser.add_argument("--seeds", type=int, nargs="+", default=(*range(5), *OTHERS))
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    text = given.out.read_text().splitlines() if given.out.exists() else []
    lines = [json.loads(line) for line in text]
    if given.summary:
        print("\n".join(summary(lines)))
        return
    known = {(line["table"], line["seed"]) for line in lines}
    for seed in given.seeds:
        for name in NAMES if seed in OTHERS else TABLES:
            if (name, seed) not in known:
                found = list(lines_of(name, table(name, seed, given.data), seed))
                with given.out.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
