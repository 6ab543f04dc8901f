"""One pass over the pooled rows equals one reply per site, for any table with empty cells."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.testing import Case
from fedminmax.testing.replies import check_fused_equals_plain
from tests.contract.cases import FAST, ONE_STEP, for_each
from tests.problems import Problem, softmax_problems

PARTICIPATION = st.sampled_from([1.0, 0.5])


@for_each(ONE_STEP)
@settings(max_examples=8)
@given(problem=softmax_problems(), participation=PARTICIPATION)
def test_a_dozen_rounds_agree(case: Case, problem: Problem, participation: float) -> None:
    """Fifty on one table are in the contract; here it is the tables that differ."""
    check_fused_equals_plain(case, problem, participation, rounds=12)


@for_each(FAST)
@settings(max_examples=4)
@given(problem=softmax_problems(), participation=PARTICIPATION)
def test_a_few_rounds_of_looking_ahead_agree(
    case: Case, problem: Problem, participation: float
) -> None:
    check_fused_equals_plain(case, problem, participation)
