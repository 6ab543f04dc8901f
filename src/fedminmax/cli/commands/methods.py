"""`fedminmax methods`: each method's paper, objective, disclosure and options."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from fedminmax.cli.terminal import print_table, say, wide_console
from fedminmax.core.errors import InputError
from fedminmax.methods.card import MethodCard
from fedminmax.methods.catalogue import CARDS, unusable_methods


def list_methods(names: Sequence[str], *, as_json: bool) -> None:
    """Print the cards of these methods, or of all."""
    for name in names:
        if name not in CARDS:
            raise InputError(f"method '{name}' is unknown; choose from {', '.join(CARDS)}")
    cards = [CARDS[name] for name in names or CARDS]
    for complaint in [] if names else unusable_methods():
        say(f"warning: {complaint}")
    if as_json:
        print(json.dumps([_plain(card) for card in cards]))
        return
    console = wide_console()
    for card in cards:
        console.print(Text.assemble((card.key, "bold"), f"  {card.paper}"))
        for what, fact in _facts(card).items():
            console.print(f"  {what:<12}{fact}")
        options = [(option.name, option.default, option.source) for option in card.options]
        headers = ("option", "default", "source of the default")
        print_table(console, "", headers, options, names=2, sentences=1)


def _facts(card: MethodCard) -> dict[str, str]:
    return {
        "optimises": f"{card.optimises} (over {card.scope})",
        "reveals": card.reveals,
        "sites": "any subset may take part in a round"
        if card.works_with_absent
        else "needs all of them in every round for its paper's guarantee",
        "round": card.pace.value,
    }


def _plain(card: MethodCard) -> dict[str, object]:
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
