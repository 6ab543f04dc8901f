"""Put the lines of ``risks.jsonl`` together: the tables of ``table.md``.

    python -m experiments.real_sites.summary

A number is a mean over the seeds that the models of ``SHOWN`` have in common; where another model
has fewer, its line says so. All models of a table and seed have the same test records.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.real_sites.run import FRONTIER, KEPT, RESULTS, TABLES
from fedminmax.core.files import write_text
from fedminmax.core.text import counted, markdown_table

PAGE = Path(__file__).with_name("table.md")
MEASURES = {"mean": "mean", "worst_group": "worst group", "worst_site": "worst site"}
# Columns of the tables by group and by site.
SHOWN = (
    "default",
    "plain",
    "exact minimax",
    "worst site",
    "LightGBM, 400 trees",
    "each site alone",
)
HEAD = """# Figures of states and hospitals

Brier scores (sum over both classes) of test records, means over seeds; written by
`python -m experiments.real_sites.summary`. What the models are, and what follows: [States and
hospitals](README.md).
"""


def main() -> None:
    """Write the page."""
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    parts = [HEAD]
    for name in TABLES:
        own = pd.DataFrame([line for line in lines if line["table"] == name])
        seeds = set.intersection(*(set(own[own["model"] == model]["seed"]) for model in SHOWN))
        own = own[own["seed"].isin(seeds)]
        frontier = own["model"].str.startswith(FRONTIER)
        points = own[frontier]
        found = points["seed"].nunique()
        parts += [
            f"## {name}, {counted(len(seeds), 'seed')}",
            models_table(own[~frontier]),
            f"### {name}, by group",
            parts_table(own, "by_group"),
            f"### {name}, by site",
            parts_table(own, "by_site"),
            f"### {name}, the frontier, {counted(found, 'seed')}",
            frontier_table(points),
        ]
    write_text(PAGE, "\n\n".join(part.strip() for part in parts) + "\n")


def models_table(own: pd.DataFrame) -> str:
    """Return every model with its mean, worst group, worst site, AUROC and rounds."""
    cells = []
    for model, lines in own.groupby("model", sort=False):
        numbers = [_spread(lines[name]) for name in MEASURES]
        rounds = lines["rounds"].mean()
        took = "" if np.isnan(rounds) else f"{rounds:.1f}"
        seeds = str(len(lines))
        cells.append([str(model), seeds, *numbers, f"{lines['auroc'].mean():.4f}", took])
    return markdown_table(["model", "seeds", *MEASURES.values(), "AUROC", "rounds"], cells)


def parts_table(own: pd.DataFrame, by: str) -> str:
    """Return the means of each group or site, by model; those that every seed measured."""
    columns = [
        pd.DataFrame(list(own[own["model"] == model][by])).mean(skipna=False) for model in SHOWN
    ]
    table = pd.concat(columns, axis=1).dropna().sort_index()
    cells = [[str(part), *(f"{value:.4f}" for value in row)] for part, row in table.iterrows()]
    return markdown_table([by.removeprefix("by_"), *SHOWN], cells)


def frontier_table(own: pd.DataFrame) -> str:
    """Return the points from plain to minimax: mean and worst group, in training and after it."""
    cells = []
    kept = own["model"].str.removeprefix(KEPT).replace(FRONTIER, "").to_numpy()
    for share in sorted({share for share in kept if share}, key=float, reverse=True):
        lines = own[kept == share]
        names = ("training_mean", "training_worst", "mean", "worst_group")
        cells.append([share, *(f"{lines[name].mean():.4f}" for name in names)])
    lines = own[own["model"] == FRONTIER]
    cells.append(
        ["recommended", "", "", *(f"{lines[n].mean():.4f}" for n in ("mean", "worst_group"))]
    )
    heads = ("kept share", "training: mean", "worst group", "new records: mean", "worst group")
    return markdown_table(heads, cells)


def _spread(values: "pd.Series[float]") -> str:
    """Return the mean and, of several seeds, the lowest and the highest."""
    ends = "" if len(values) == 1 else f" ({values.min():.4f} to {values.max():.4f})"
    return f"{values.mean():.4f}{ends}"


if __name__ == "__main__":
    main()
