"""Every method, as users see it: one card each, in the order of tables."""

from typing import Any

from fedminmax.core.convergence import Goal
from fedminmax.methods.card import MethodCard
from fedminmax.methods.cards_of_parity import OF_PARITY
from fedminmax.methods.cards_over_groups import OVER_GROUPS
from fedminmax.methods.cards_over_holders import OVER_HOLDERS
from fedminmax.methods.method import AnyMethod

CARDS: dict[str, MethodCard] = {
    card.key: card for card in (*OVER_GROUPS, *OVER_HOLDERS, *OF_PARITY)
}


def card_of(method: AnyMethod[Any]) -> MethodCard | None:
    """Return the card of a method's kind; None for a method of the user's own."""
    return next((card for card in CARDS.values() if card.make is type(method)), None)


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
