"""Every method, as users see it: one card each, in the order of tables."""

from fedminmax.methods.card import MethodCard
from fedminmax.methods.cards_of_parity import OF_PARITY
from fedminmax.methods.cards_over_groups import OVER_GROUPS
from fedminmax.methods.cards_over_holders import OVER_HOLDERS

CARDS: dict[str, MethodCard] = {
    card.key: card for card in (*OVER_GROUPS, *OVER_HOLDERS, *OF_PARITY)
}
