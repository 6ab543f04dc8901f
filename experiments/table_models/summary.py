"""Put the lines of ``risks.jsonl`` together: the tables of README.md, and the figure.

    python -m experiments.table_models.summary

A number is a mean over seeds, and all models of a table and seed have the same test records. Where
a model has fewer than five seeds, the tables say how many.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from experiments.table_models.measures import RESULTS, SEEDS
from experiments.table_models.ours import WITH_SITE
from experiments.table_models.tables import NAMES
from fedminmax.core.files import write_text
from fedminmax.core.text import markdown_table
from fedminmax.report.style import new_figure, plain_axes, save_figure, series_style

README = Path(__file__).with_name("README.md")
FIGURE = Path(__file__).with_name("risks")
MINIMAX = ("logistic", "additive", "mlp")
PLAIN = tuple(f"{kind}, plain" for kind in MINIMAX)
POOLED = ("HistGradientBoosting", "LightGBM", "LightGBM, 400 trees", "XGBoost", "EBM")
ALONE = "each site alone"
# The boosted trees of the large table and the figure: the only ones that stop early everywhere.
TREES = "LightGBM"
SHOWN = (*MINIMAX, *PLAIN[:2], TREES, WITH_SITE, ALONE)
CLOSER = ("adult", "acs", "heart")


def means_of(entries: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds, by table and model, and the number of ``seeds``."""
    groups = entries.groupby(["table", "model"])
    means = groups[["worst", "mean", "auroc"]].mean()
    return means.assign(seeds=groups.size())


def all_tables(means: pd.DataFrame) -> str:
    """Return every table with the models that are shown: worst group (mean)."""
    lines = [[name, *_cells(means, name)] for name in NAMES]
    return markdown_table(["table", *SHOWN], lines)


def _cells(means: pd.DataFrame, table: str) -> Iterator[str]:
    for model in SHOWN:
        if (table, model) not in means.index:
            yield ""
            continue
        own = means.loc[(table, model)]
        fewer = "" if own["seeds"] == SEEDS else f", {own['seeds']:.0f} of {SEEDS} seeds"
        yield f"{own['worst']:.4f} ({own['mean']:.4f}){fewer}"


def closer_look(means: pd.DataFrame) -> str:
    """Return every model on three published tables: worst group, mean and AUROC."""
    header = [
        "model",
        *(f"{table}: {what}" for table in CLOSER for what in ("worst", "mean", "AUROC")),
    ]
    lines = [
        [
            model,
            *(
                f"{means.loc[(table, model), key]:.4f}" if (table, model) in means.index else ""
                for table in CLOSER
                for key in ("worst", "mean", "auroc")
            ),
        ]
        for model in (*MINIMAX, *PLAIN[:2], *POOLED, ALONE)
    ]
    return markdown_table(header, lines)


def draw(means: pd.DataFrame) -> None:
    """Draw risks as multiples of logistic regression's: minimax on the left, plain on the right."""
    panels = {
        ("worst", "worst group's risk, minimax models"): (MINIMAX[0], (*MINIMAX[1:], TREES)),
        ("mean", "mean risk, plain models"): (PLAIN[0], (*PLAIN[1:], TREES)),
    }
    with new_figure(9.0, 5.2) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, ((key, title), (reference, models)) in zip(axes, panels.items(), strict=True):
            for number, model in enumerate(models):
                style = series_style(number)
                ratios = [ratio_of(means, table, key, model, reference) for table in NAMES]
                axis.plot(
                    ratios,
                    range(len(NAMES)),
                    label=model.removesuffix(", plain"),
                    color=style.colour,
                    marker=style.marker,
                    linestyle="",
                )
            axis.axvline(1.0, color="black", linewidth=0.8)
            axis.set_yticks(range(len(NAMES)), NAMES)
            axis.set_xlabel(f"{title}, logistic regression = 1")
            plain_axes(axis, "x")
        axes[0].invert_yaxis()
        axes[0].legend(frameon=False)
        save_figure(figure, FIGURE)
    FIGURE.with_suffix(".png").unlink()


def ratio_of(means: pd.DataFrame, table: str, key: str, model: str, reference: str) -> float:
    """Return one model's mean as a share of another's; NaN unless both have all seeds."""
    pair = [(table, model), (table, reference)]
    if any(one not in means.index or means.loc[one, "seeds"] < SEEDS for one in pair):
        return math.nan
    return float(means.loc[pair[0], key] / means.loc[pair[1], key])


def with_part(page: str, name: str, content: str) -> str:
    """Return a page with new content between two marks."""
    before, start, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    if not start or not end:
        raise ValueError(f"README.md has no marks of {name}")
    return f"{before}{start}\n{content}\n\n{end}{after}"


def missed(means: pd.DataFrame, models: Sequence[str], limit: float) -> Iterator[str]:
    """Say where the first model is worse than the second by more than a share."""
    ours, other = models
    for table in NAMES:
        for key in ("worst", "mean"):
            ratio = ratio_of(means, table, key, ours, other)
            if ratio > 1 + limit:
                yield f"{table}: {key} of {ours} is {ratio:.4f} of {other}"


def main() -> None:
    """Write tables and figure; print where an additive model or a network is worse."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    means = means_of(pd.DataFrame([json.loads(line) for line in lines]))
    page = README.read_text(encoding="utf-8")
    page = with_part(page, "all tables", all_tables(means))
    page = with_part(page, "closer look", closer_look(means))
    write_text(README, page)
    draw(means)
    for pair in zip((*MINIMAX[1:], *PLAIN[1:]), (*MINIMAX[:1] * 2, *PLAIN[:1] * 2), strict=True):
        print("\n".join(missed(means, pair, 0.01)))


if __name__ == "__main__":
    main()
