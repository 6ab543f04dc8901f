"""Which curves over rounds a run has: risks on training and on validation rows, weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from fedminmax.core.counted import counted
from fedminmax.report.html_figure import Table
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_style import MOST_SERIES
from fedminmax.report.html_words import NOTHING, decimals_of, number
from fedminmax.report.round_records import RoundRecord

MOST_LINES_OF_TABLE = 20
WEIGHT_DECIMALS = 3


@dataclass(frozen=True)
class Panel:
    """Curves over rounds: which to name, in the order of their styles; the others are grey.

    ``risks`` tells whether the values are risks, or else weights.
    """

    title: str
    names: tuple[str, ...]
    named: tuple[int, ...]
    values: Callable[[RoundRecord], tuple[float | None, ...]]
    decimals: int
    risks: bool = True


def panels_of(run: Run) -> list[Panel]:
    """Return the panel of risks, and those of validation risks and of weights if there are any.

    Weights that belong neither to groups nor to holders have none.
    """
    groups, last = run.chosen.results.groups, run.chosen.rounds[-1]
    names = {"groups": groups, "holders": run.census.holders}.get(last.weights_over, ())
    by_group = last.weights_over == "groups" and len(last.weights) == len(groups)
    order = _highest(last.risks, last.weights if by_group else ())
    title, decimals = "risk by group on training rows", decimals_of(run.chosen.results)
    panels = [Panel(title, groups, order, lambda line: line.risks, decimals)]
    if any(line.validation_risks for line in run.chosen.rounds):
        title = "risk by group on validation rows"
        panels.append(Panel(title, groups, order, lambda line: line.validation_risks, decimals))
    if last.weights and len(last.weights) == len(names):
        # Groups keep the styles that they have above.
        chosen = order if by_group else _highest(last.weights)
        title = f"weight by {last.weights_over.removesuffix('s')}"
        panels.append(
            Panel(title, names, chosen, lambda line: line.weights, WEIGHT_DECIMALS, risks=False)
        )
    return panels


def _highest(*columns: Sequence[float | None]) -> tuple[int, ...]:
    """Return the first of each column in turn, then the second of each, and so on."""
    ranked = [
        sorted(range(len(column)), key=lambda number: -value_at(column, number, -math.inf))
        for column in columns
        if column
    ]
    in_turn = chain.from_iterable(zip(*ranked, strict=True))
    return tuple(dict.fromkeys(in_turn))[:MOST_SERIES]


def value_at(values: Sequence[float | None], number: int, otherwise: float = math.nan) -> float:
    """Return a value; where there is none, by default what is drawn as a gap."""
    value = values[number] if number < len(values) else None
    return otherwise if value is None else value


def thinned(rounds: Sequence[RoundRecord], most: int) -> list[RoundRecord]:
    """Keep the first, the last and an even choice between them."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[place * (len(rounds) - 1) // (most - 1)] for place in range(most)]


def panel_table(run: Run, panel: Panel) -> Table:
    """Show the values of a panel at some rounds."""
    lines = thinned(run.chosen.rounds, MOST_LINES_OF_TABLE)
    return Table(
        f"{panel.title} at {counted(len(lines), 'round')}; all are in rounds.jsonl",
        ("Round", *panel.names),
        tuple(
            (
                str(line.round),
                *(_cell(panel, line, place) for place in range(len(panel.names))),
            )
            for line in lines
        ),
    )


def _cell(panel: Panel, line: RoundRecord, place: int) -> str:
    value = value_at(panel.values(line), place)
    return NOTHING if math.isnan(value) else number(value, panel.decimals)
