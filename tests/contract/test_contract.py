"""Every method keeps the contract that ``fedminmax.testing`` offers to authors of new ones."""

import pytest

from fedminmax.methods.catalogue import BUILT_IN
from fedminmax.testing import Case, Check, checks_for
from tests.contract.cases import EVERY

PAIRS = {
    f"{case.label}-{check.__name__}": (case, check) for case in EVERY for check in checks_for(case)
}


@pytest.mark.parametrize(("case", "check"), PAIRS.values(), ids=PAIRS)
def test_every_method_keeps_it(case: Case, check: Check) -> None:
    check(case)


def test_every_method_has_a_row() -> None:
    assert {case.card.key for case in EVERY} == set(BUILT_IN)
