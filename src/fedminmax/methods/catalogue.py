"""Every method, as users see it: one card each, in the order of tables.

A card stands in its method's file (``register``); this module looks through the files.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fedminmax import methods
from fedminmax.core.convergence import Goal
from fedminmax.methods.card import MethodCard, Over, Pace, card_of
from fedminmax.methods.method import AnyMethod, takes_one_step

# Those that most readers look for, before the others of their section.
FIRST = ("fedminmax", "fedminmax-fast", "fedavg", "fedavg-fast", "afl", "afl-fast")


def _cards_in_this_room() -> Iterator[MethodCard]:
    for found in iter_modules(methods.__path__, f"{methods.__name__}."):
        if not found.ispkg and found.name != __name__:
            module = import_module(found.name)
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == found.name:
                    card = card_of(value)
                    if card is not None:
                        yield card


def _place(card: MethodCard) -> tuple[bool, bool, int, str]:
    """Return where a card stands: over groups, over holders and rows, of parity."""
    order = FIRST.index(card.key) if card.key in FIRST else len(FIRST)
    return card.parity, card.over is not Over.GROUPS, order, card.key


CARDS: dict[str, MethodCard] = {
    card.key: card for card in sorted(_cards_in_this_room(), key=_place)
}


def pace_of(method: AnyMethod[Any]) -> Pace:
    """Say how much a round of a method does; one of the user's own counts by its kind."""
    card = card_of(method)
    if card is None:
        return Pace.ONE_STEP if takes_one_step(method) else Pace.LOCAL_EPOCHS
    return card.pace


def goal_of(method: AnyMethod[Any]) -> Goal:
    """Say what a method minimises, as far as risks by group show it.

    >>> from fedminmax.methods.fedminmax import FedMinMax
    >>> goal_of(FedMinMax(epsilon=0.01)), goal_of(FedMinMax(adversary_rate=0.0))
    (Goal(minimax=True, weights_floor=0.01), Goal(minimax=False, weights_floor=None))
    """
    card = card_of(method)
    # An adversary that does not move leaves the mean risk to be minimised.
    if card is None or not card.minimax_over_groups or getattr(method, "adversary_rate", 1) == 0:
        return Goal(minimax=False)
    return Goal(minimax=True, weights_floor=getattr(method, "epsilon", None))
