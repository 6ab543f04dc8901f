"""The contract that every method keeps, as checks for the author of a new one.

    from fedminmax.testing import check_method

    def test_my_method():
        check_method(MyMethod())

For one test per check, iterate over ``checks_for(case_of(MyMethod()))``. The methods of
this package pass the same checks. A check that fails raises ``AssertionError`` with the method's
name. Nothing here needs a test framework.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedminmax.testing import replies, rounds
from fedminmax.testing.case import Case, Check, Method

__all__ = ["Case", "Check", "case_of", "check_method", "checks_for"]

FOR_ALL: Sequence[Check] = (
    replies.check_card,
    replies.check_the_absent_keep_their_weight,
    replies.check_participants,
    replies.check_fused_equals_plain,
    replies.check_replies_add_up,
    replies.check_the_network_takes_its_replies,
    rounds.check_nothing_can_be_assigned,
    rounds.check_later_rounds_do_not_reach_back,
    rounds.check_what_a_round_hands_out_is_a_copy,
    rounds.check_asking_twice,
    rounds.check_resume,
    rounds.check_a_longer_run_begins_with_the_shorter_one,
    rounds.check_ridge,
    rounds.check_round_risks,
    rounds.check_the_same_seed_gives_the_same_bits,
    rounds.check_who_takes_part_depends_on_the_seed,
    rounds.check_threads,
)
FOR_BATCHES: Sequence[Check] = (
    rounds.check_mini_batches_depend_on_the_seed,
    rounds.check_sites_shuffle_differently,
)
WITHOUT_LOTS: Sequence[Check] = (
    rounds.check_full_batches_do_not_depend_on_the_seed,
    rounds.check_the_order_of_sites_does_not_matter,
)


def case_of(method: Method, *, draws_lots: bool = False, tolerance: float = 1e-12) -> Case:
    """Return the case of a method as it is; its checks choose the batch size, if it has one."""

    def make(batch: int | None) -> Method:
        if not hasattr(method, "batch_size"):
            return method
        changed: Method = replace(method, batch_size=batch)  # type: ignore[type-var]
        return changed

    return Case(method.name, make, draws_lots, tolerance)


def check_method(method: Method, *, draws_lots: bool = False, tolerance: float = 1e-12) -> None:
    """Run all checks that apply to a method.

    Args:
        method: the method, with settings that move the model within a few rounds.
        draws_lots: whether it draws at the server, so that even full batches depend on the seed.
        tolerance: how far rounding alone may move its model.
    """
    case = case_of(method, draws_lots=draws_lots, tolerance=tolerance)
    for check in checks_for(case):
        check(case)


def checks_for(case: Case) -> list[Check]:
    """Return the checks that apply to a method."""
    checks = list(FOR_ALL)
    if case.has_batches:
        checks += FOR_BATCHES
    if not case.draws_lots:
        checks += WITHOUT_LOTS
    return checks
