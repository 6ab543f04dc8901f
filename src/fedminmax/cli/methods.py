"""`fedminmax methods`: a line for each method; of named ones also paper, rounds and options."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command, add_options

if TYPE_CHECKING:
    from fedminmax.methods.card import MethodCard


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "methods",
        list_methods,
        short="list every method, or one with its paper and options",
        text="List every method: what it minimises, and what a site reveals to the server. With "
        "NAME also its paper, whether it needs all sites, and its options with their defaults.",
        example="methods fedminmax qfedavg",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, in full")
    add_options(parser, "--json")


def list_methods(options: argparse.Namespace) -> None:
    """Print these methods in full, or a line for each."""
    from rich.text import Text

    from fedminmax.cli.main import say
    from fedminmax.cli.terminal import print_table, wide_console
    from fedminmax.core.errors import InputError
    from fedminmax.core.messages import Reveals
    from fedminmax.core.text import did_you_mean
    from fedminmax.methods.catalogue import CARDS, unusable_methods

    for name in options.names:
        if name not in CARDS:
            raise InputError(f"method '{name}' is unknown; {did_you_mean(name, list(CARDS))}")
    cards = [CARDS[name] for name in options.names or CARDS]
    for complaint in [] if options.names else unusable_methods():
        say(f"warning: {complaint}")
    if options.json:
        print(json.dumps([_plain(card) for card in cards]))
        return
    console = wide_console()
    if not options.names:
        short = {
            Reveals.SUMS.value: "sums",
            Reveals.OWN_LOSS.value: "its loss",
            Reveals.OWN_VECTOR.value: "its update",
        }
        lines = [(card.key, short[card.reveals], card.optimises) for card in cards]
        headers = ("method", "a site reveals", "minimises")
        print_table(console, "", headers, lines, names=2, sentences=1)
        console.print("'fedminmax methods NAME' has a method's paper and options.")
        return
    for card in cards:
        console.print(Text.assemble((card.key, "bold"), f"  {card.paper}"))
        for what, fact in _facts(card).items():
            console.print(f"  {what:<12}{fact}")
        lines = [(option.name, option.default, option.source) for option in card.options]
        headers = ("option", "default", "source of the default")
        print_table(console, "", headers, lines, names=2, sentences=1)


def _facts(card: "MethodCard") -> dict[str, str]:
    return {
        "optimises": f"{card.optimises} (over {card.scope})",
        "reveals": card.reveals,
        "sites": "any subset may take part in a round"
        if card.works_with_absent
        else "needs all of them in every round for its paper's guarantee",
        "round": card.pace.value,
    }


def _plain(card: "MethodCard") -> dict[str, object]:
    return {
        "key": card.key,
        "paper": card.paper,
        "optimises": card.optimises,
        "over": card.scope,
        "reveals": card.reveals,
        "works_with_absent_sites": card.works_with_absent,
        "round": card.pace.value,
        "options": [asdict(option) for option in card.options],
    }
