"""By which objective validation rows choose among a method's models: its own."""

from typing import Any

from fedminmax.core.judging import MEAN, WORST_GROUP, WORST_SITE, Judge
from fedminmax.methods.card import Over, card_of
from fedminmax.methods.method import AnyMethod


def judge_of(method: AnyMethod[Any]) -> Judge:
    """Return the method's own ``judge`` if it has one, else what its card says it minimises.

    Without a card, it is the worst group's risk. Methods that aim at equal rates minimise the mean
    risk besides, which is what losses show of them.

    >>> from fedminmax.methods.fedavg import FedAvg
    >>> judge_of(FedAvg()).players.value
    'rows'
    """
    own = getattr(method, "judge", None)
    if isinstance(own, Judge):
        return own
    card = card_of(method)
    if card is None:
        return WORST_GROUP
    if not card.minimax or getattr(method, "adversary_rate", 1) == 0:
        return MEAN
    return WORST_SITE if card.over is Over.SITES else WORST_GROUP
