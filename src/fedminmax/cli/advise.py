"""`fedminmax advise`: what the row counts imply, on the terminal, as JSON, or as a page."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command, add_options, check_new_file
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from fedminmax.advice.counts import Advice

PICTURES = (".svg", ".png")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "advise",
        give_advice,
        short="see what to expect before you train",
        text="Show before any training what the row counts by site and group imply: whether "
        "protecting the worst site protects the worst group, which groups are too small, what a "
        "site reveals to the server, how many rounds and bytes a run takes, and what would help. "
        "Nothing is trained.",
        example="advise fedminmax.toml --out advice.html",
    )
    add = parser.add_argument
    config_help = "a fedminmax.toml, or a run folder's census.json"
    add("config", type=Path, metavar="CONFIG", help=config_help)
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write a page (.html), or only the figure (.svg, .png)",
    )
    add_options(parser, "--json", "--force")


def give_advice(options: argparse.Namespace) -> None:
    """Print the advice, and write it into a file if one is named."""
    from fedminmax.advice.advise import advise_on
    from fedminmax.cli.main import say
    from fedminmax.cli.terminal import wide_console

    out = options.out
    if out is not None:
        if out.suffix not in (".html", *PICTURES):
            raise InputError(
                f"{out} is neither a page nor a figure; give a file that ends in .html, .svg or "
                ".png with --out"
            )
        check_new_file(out, "--out", force=options.force)
    advice = advise_on(options.config)
    if options.json:
        print(json.dumps(advice_as_json(advice)))
    else:
        print_advice(wide_console(), advice)
    if out is not None:
        _write(out, advice, options.config.name)
        say(f"written: {out}")


def advice_as_json(advice: "Advice") -> dict[str, object]:
    """Return the advice as plain values, with what it implies."""
    from fedminmax.findings.advice import answer, remedies

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


def print_advice(console: "Console", advice: "Advice") -> None:
    """Print what would help, tables of groups and costs, and what sites decide and reveal."""
    from fedminmax.cli.terminal import print_table
    from fedminmax.findings import advice as words

    _say(console, "What would help", "bold")
    for remedy in words.remedies(advice) or [words.NOTHING_STANDS_OUT]:
        _say(console, f"- {remedy}")
    titled = {"Groups": words.groups_table(advice)}
    if advice.costs:
        titled["What a run costs each site"] = words.costs_table(advice)
    for title, table in titled.items():
        console.print()
        print_table(console, title, table.headers, table.lines)
        _say(console, table.caption)
    console.print()
    _say(console, words.QUESTION, "bold")
    _say(console, f"{words.answer(advice)} {words.ANY_PARTITION}")
    console.print()
    table = words.reveals_table(advice)
    print_table(console, "What a site reveals", table.headers, table.lines, sentences=1)


def _say(console: "Console", text: str, style: str = "") -> None:
    from rich.text import Text

    from fedminmax.cli.terminal import printable

    console.print(Text(printable(text), style))


def _write(out: Path, advice: "Advice", source: str) -> None:
    from fedminmax import __version__
    from fedminmax.core.files import write_text
    from fedminmax.report.page import ADVICE_GENERATOR, mixes_figure, render_advice
    from fedminmax.report.style import styled_figure, write_figure

    if out.suffix == ".html":
        write_text(out, render_advice(advice, source, __version__))
        return
    picture = mixes_figure(advice, out.stem)
    with styled_figure(picture.width, picture.height, as_text=False) as figure:
        picture.draw(figure)
        write_figure(figure, out, ADVICE_GENERATOR)
