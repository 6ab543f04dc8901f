"""The contract finds faults: each of these is the worked example of docs/own_method.md, spoilt."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from fedminmax.testing import Case, Check, case_of, check_method, replies, rounds
from tests.own_package import CODE, install

KEEPS = "state.weights.masked_scatter(moves, raised * share)"
SPOILT: dict[str, tuple[str, str, Check, str]] = {
    "absent groups lose their weight": (
        KEEPS,
        "(state.weights * moves).masked_scatter(moves, raised / raised.sum())",
        replies.check_the_absent_keep_their_weight,
        "the absent keep their weight",
    ),
    "a state is written to": (
        KEEPS,
        "state.weights.masked_scatter_(moves, raised * share)",
        rounds.check_later_rounds_do_not_reach_back,
        "a later round changed an earlier state",
    ),
    "randomness is global": (
        "state.weights / state.group_shares",
        "state.weights / state.group_shares * __import__('torch').rand(1).double()",
        rounds.check_the_same_seed_gives_the_same_bits,
        "global random state",
    ),
    "a site's number matters": (
        "weigh_by_group(order, sites, counts)",
        "RowWeights((sites[:, None] + counts).double(), counts.sum(dim=1).double())",
        rounds.check_the_order_of_sites_does_not_matter,
        "models in another order of sites",
    ),
    "the card names other weights": (
        "Weights.GROUPS,",
        "Weights.SITES,",
        replies.check_card,
        "state.weights has 2 entries, but the card says weights over sites",
    ),
    "it has no card": (
        "@MethodCard(",
        "@(lambda **_: lambda kind: kind)(",
        replies.check_card,
        "has no card",
    ),
    "it can be changed": (
        "@dataclass(frozen=True)",
        "@dataclass",
        rounds.check_nothing_can_be_assigned,
        "GroupDRO.learning_rate can be assigned",
    ),
}


@pytest.fixture
def case_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Case]:
    def made(code: str) -> Case:
        install(tmp_path, monkeypatch, code=code)
        return case_of(import_module("group_dro").GroupDRO(learning_rate=0.3, adversary_rate=0.4))

    return made


@pytest.mark.parametrize("fault", SPOILT)
def test_a_fault_is_found(fault: str, case_from: Callable[[str], Case]) -> None:
    right, wrong, check, words = SPOILT[fault]
    assert CODE.count(right) == 1
    with pytest.raises(AssertionError, match=f"(?s)Group DRO.*{words}"):
        check(case_from(CODE.replace(right, wrong)))


def test_the_example_has_none(case_from: Callable[[str], Case]) -> None:
    check_method(case_from(CODE).full_batch)
