"""Plans that promise privacy: what cannot be promised is refused by name, and sites agree to it."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.noise import Unit
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import (
    NetworkPlan,
    SecureAggregation,
    digest_of,
    plan_from_bytes,
    plan_to_bytes,
)
from tests.network.masked_problem import FOUR_SITES, listed_config
from tests.network.private_sites import FAST, PROMISE, private_plan

Change = Callable[[NetworkPlan], NetworkPlan]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> NetworkPlan:
    return private_plan(listed_config(tmp_path_factory.mktemp("plans")))


def test_a_plan_with_its_promise_travels(plan: NetworkPlan) -> None:
    assert plan_from_bytes(plan_to_bytes(plan), "it") == plan


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plan: replace(plan, secure_aggregation=None), "sums are not masked"),
        (
            lambda plan: replace(plan, runs=(PlannedRun("fedavg", {}, 2),)),
            'fedavg cannot keep it with unit = "row"',
        ),
        (lambda plan: replace(plan, runs=(replace(FAST, options={}),)), "curvature sums"),
        (lambda plan: replace(plan, runs=(FAST, FAST)), "a second model would spend"),
        (lambda plan: replace(plan, validation=0.1), "losses on validation rows and proofs"),
        (lambda plan: replace(plan, certify=True), "losses on validation rows and proofs"),
        (lambda plan: replace(plan, runs=(replace(FAST, rounds=3),)), "it is for 2 rounds, and 3"),
        (
            lambda plan: replace(
                plan, schema=replace(plan.schema, small_groups=SmallGroupRule.MERGE)
            ),
            "merging small groups",
        ),
        (lambda plan: replace(plan, sites=FOUR_SITES), "totals over 3 of 4 sites would lack noise"),
        (
            lambda plan: replace(plan, privacy=replace(PROMISE, colluding=3)),
            "totals over 3 of 3 sites would lack noise",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused_by_name(
    change: Change, reason: str, plan: NetworkPlan
) -> None:
    with pytest.raises(RefusedError) as refusal:
        plan_from_bytes(plan_to_bytes(change(plan)), "it")
    assert f"it asks for [privacy], but {reason}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_a_promise_that_is_none_is_no_plan(delta: float, plan: NetworkPlan) -> None:
    content = json.loads(plan_to_bytes(plan))
    content["privacy"]["delta"] = delta
    with pytest.raises(RefusedError, match="sent no plan of this version"):
        plan_from_bytes(json.dumps(content).encode(), "it")


def test_a_site_agrees_to_every_part_of_a_promise(plan: NetworkPlan) -> None:
    changes: dict[str, object] = {
        "epsilon": 9.0,
        "delta": 1e-4,
        "clip": 0.7,
        "rounds": 3,
        "unit": Unit.SITE,
        "colluding": 1,
        "max_loss": 1.0,
    }
    others = [replace(PROMISE, **{name: value}) for name, value in changes.items()]  # type: ignore[arg-type]
    plans = [plan, replace(plan, privacy=None), *(replace(plan, privacy=own) for own in others)]
    assert len({digest_of(own) for own in plans}) == len(plans)
    # Who takes part, and so over how many sites totals are, is not part of it.
    more = replace(plan, sites=FOUR_SITES, secure_aggregation=SecureAggregation(4))
    assert digest_of(more) == digest_of(plan)
