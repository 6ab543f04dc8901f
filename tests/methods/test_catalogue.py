"""The catalogue is complete, and what it says of a method is what the method does.

The table of methods in docs/methods.md is the one that the cards give.
"""

import importlib
import pkgutil
from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from scripts.method_tables import PAGE, STUB, methods_table, names_of_the_room, with_table

from fedminmax import methods
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Reveals
from fedminmax.methods.card import Pace, Weights, card_of
from fedminmax.methods.catalogue import BUILT_IN, CARDS
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import needs_each_reply, takes_one_step


def method_classes() -> set[type]:
    """Every record in the room of methods that says what sites reveal."""
    modules = [module.name for module in pkgutil.iter_modules(methods.__path__)]
    names = [vars(importlib.import_module(f"fedminmax.methods.{module}")) for module in modules]
    return {
        value
        for content in names
        for value in content.values()
        if isinstance(value, type)
        and is_dataclass(value)
        and "reveals" in {field.name for field in fields(value)}
        and not value.__module__.startswith("fedminmax.methods.shared.")
    }


def test_every_method_has_exactly_one_card() -> None:
    assert {card.make for card in CARDS.values()} == method_classes()
    assert len({card.make for card in CARDS.values()}) == len(CARDS)


@pytest.mark.parametrize("key", list(CARDS))
def test_every_option_has_a_source_and_no_source_is_left_over(key: str) -> None:
    card = CARDS[key]
    assert card.sources.keys() == card.option_types.keys()
    assert all(option.source and option.default for option in card.options)


@pytest.mark.parametrize("key", list(CARDS))
def test_a_method_shows_vectors_exactly_if_it_takes_them(key: str) -> None:
    method = CARDS[key].build({})
    assert needs_each_reply(method) == (method.reveals is Reveals.OWN_VECTOR)
    if takes_one_step(method):
        assert CARDS[key].pace is Pace.ONE_STEP


@pytest.mark.parametrize("key", list(CARDS))
def test_whose_weights_a_card_names_is_whose_they_are(key: str) -> None:
    """Of two groups, three sites and two classes no two kinds of weights are equally many."""
    census = Census(torch.tensor([[3, 1], [2, 2], [0, 4]]), classes=2)
    state = CARDS[key].build({}).init(torch.zeros(4), census)
    sizes = {Weights.NONE: 0, Weights.GROUPS: 2, Weights.SITES: 3, Weights.CELLS: 4}
    assert len(state.weights) == sizes[CARDS[key].weights]


def test_what_a_card_says_in_prose_decides_nothing() -> None:
    card = CARDS["fedminmax"]
    assert replace(card, optimises="something").minimax_over_groups
    assert not replace(CARDS["fedavg"], optimises="worst group's risk").minimax_over_groups


def test_what_is_derived_from_a_method_does_not_inherit_its_card() -> None:
    assert card_of(FedMinMax()) is CARDS["fedminmax"]
    assert card_of(FedMinMax) is CARDS["fedminmax"]
    assert card_of(type("Other", (FedMinMax,), {})) is None


def test_words_become_settings() -> None:
    method = CARDS["qfedavg"].build({"epochs": 3, "adversary_rate": 0.5}, {"batch_size": "none"})
    assert repr(method) == repr(CARDS["qfedavg"].make(5.0, epochs=3, batch_size=None))
    afl = CARDS["afl"].build({}, {"start": "uniform", "scale_adversary_rate": "true"})
    assert "UNIFORM" in repr(afl)
    assert "scale_adversary_rate=True" in repr(afl)


def test_own_settings_win_over_common_ones() -> None:
    method = CARDS["fedavg"].build({"learning_rate": 0.5}, {"learning_rate": "0.25"})
    assert method.learning_rate == 0.25


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"q": "many"}, "expected a number"),
        ({"epochs": "2.5"}, "expected a whole number"),
        ({"weighting": "mine"}, "expected"),
        ({"colour": "red"}, "has no option 'colour'"),
        ({"q": "-1"}, "q = -1"),
    ],
)
def test_bad_settings_are_refused(own: dict[str, str], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        CARDS["qfedavg"].build({}, own)


def test_the_table_is_what_the_cards_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text, methods_table()) == text, "run: make tables"


def test_the_room_offers_every_method() -> None:
    assert STUB.read_text(encoding="utf-8") == names_of_the_room(), "run: make tables"


def test_every_method_is_in_the_table() -> None:
    table = methods_table()
    for card in BUILT_IN.values():
        assert table.count(f"`{card.make.__name__}`") == 1
