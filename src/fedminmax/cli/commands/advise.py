"""`fedminmax advise`: what the row counts imply, on the terminal, as JSON, or as a page."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fedminmax import __version__
from fedminmax.advice.advise import advise_on
from fedminmax.advice.counts import Advice
from fedminmax.cli.arguments.types import check_new_file
from fedminmax.cli.terminal import print_table, printable, say, wide_console
from fedminmax.core.errors import InputError
from fedminmax.core.files import atomic_write, write_text
from fedminmax.report.advice_figure import mixes_figure
from fedminmax.report.page import ADVICE_GENERATOR, render_advice
from fedminmax.report.style import styled_figure
from fedminmax.runs.advice_text import (
    ANY_PARTITION,
    COST_EXPLAINED,
    COST_HEADERS,
    GROUP_HEADERS,
    answer,
    cost_cells,
    explanation,
    group_cells,
    remedies,
)

PICTURES = (".svg", ".png")
QUESTION = "Does protecting the worst site protect the worst group?"


def give_advice(config: Path, out: Path | None, *, as_json: bool, force: bool) -> None:
    """Print the advice, and write it into a file if one is named."""
    if out is not None:
        if out.suffix not in (".html", *PICTURES):
            raise InputError(
                f"{out} is neither a page nor a figure; give a file that ends in .html, .svg or "
                ".png with --out"
            )
        check_new_file(out, "--out", force=force)
    advice = advise_on(config)
    if as_json:
        print(json.dumps(advice_as_json(advice)))
    else:
        print_advice(wide_console(), advice)
    if out is not None:
        _write(out, advice, config.name)
        say(f"written: {out}")


def advice_as_json(advice: Advice) -> dict[str, object]:
    """Return the advice as plain values, with what it implies."""
    content = asdict(advice) | {
        "reach": advice.reach.value,
        "equivalent": advice.equivalent,
        "answer": answer(advice),
        "what_would_help": remedies(advice),
    }
    content["groups"] = [
        asdict(group)
        | {
            "has_own_site": group.has_own_site,
            "has_few_test_rows": group.has_few_test_rows,
        }
        for group in advice.groups
    ]
    content["costs"] = [asdict(cost) | {"bytes_up": cost.bytes_up} for cost in advice.costs]
    return content


def print_advice(console: Console, advice: Advice) -> None:
    """Print the answer, tables of groups, costs and methods, and what would help."""
    _say(console, QUESTION, "bold")
    _say(console, f"{answer(advice)} {ANY_PARTITION}.")
    console.print()
    lines = [group_cells(group, advice) for group in advice.groups]
    print_table(console, "Groups", GROUP_HEADERS, lines)
    _say(console, explanation(advice))
    if advice.costs:
        console.print()
        lines = [cost_cells(cost) for cost in advice.costs]
        print_table(console, "What a run costs each site", COST_HEADERS, lines)
        _say(console, COST_EXPLAINED)
    console.print()
    lines = [[shown, ", ".join(keys)] for shown, keys in advice.reveals.items()]
    headers = ["a site reveals", "methods"]
    print_table(console, "What a site reveals", headers, lines, sentences=1)
    found = remedies(advice)
    if found:
        _say(console, "What would help", "bold")
        for remedy in found:
            _say(console, f"- {remedy}")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style), soft_wrap=False)


def _write(out: Path, advice: Advice, source: str) -> None:
    if out.suffix == ".html":
        write_text(out, render_advice(advice, source, __version__))
        return
    picture = mixes_figure(advice, out.stem)
    note = {
        ".png": {"Software": ADVICE_GENERATOR},
        ".svg": {"Date": None, "Creator": ADVICE_GENERATOR},
    }
    with (
        styled_figure(picture.width, picture.height, as_text=False) as figure,
        atomic_write(out) as temporary,
    ):
        picture.draw(figure)
        figure.savefig(temporary, format=out.suffix[1:], dpi=150, metadata=note[out.suffix])
