"""Plans with masked sums: what cannot be masked is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import (
    ALL_SITES,
    NetworkPlan,
    SecureAggregation,
    digest_of,
    plan_from_bytes,
    plan_to_bytes,
    threshold_for,
)
from tests.network.network_problem import plan_of, write_tables

LISTED = '[groups]\nvalues = { sex = ["Female", "Male"] }'


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace("[groups]", LISTED))
    own = plan_of(read_config(path), [PlannedRun("fedminmax", {}, 3)])
    return replace(own, secure_aggregation=SecureAggregation(3))


def test_a_plan_with_masked_sums_travels_and_has_one_site(plan: NetworkPlan) -> None:
    assert plan_from_bytes(plan_to_bytes(plan), "it") == plan
    assert plan.senders == (ALL_SITES,)
    assert (plan.minimum_sites, plan.minimum_replies) == (3, 1)


def unlisted(plan: NetworkPlan) -> NetworkPlan:
    (protected,) = plan.schema.protected
    return replace(plan, schema=replace(plan.schema, protected=(replace(protected, values=()),)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plan: replace(plan, runs=(PlannedRun("afl", {}, 3),)), "'afl' needs each site's"),
        (lambda plan: replace(plan, runs=(*plan.runs, PlannedRun("fedmgda", {}, 3))), "'fedmgda'"),
        (
            lambda plan: replace(plan, runs=(PlannedRun("fedavg", {}, 3, participation=0.5),)),
            "participation is 0.5",
        ),
        (lambda plan: replace(plan, sites=("north", "south")), "2 sites take part"),
        (
            lambda plan: replace(plan, secure_aggregation=SecureAggregation(2)),
            "totals over 2 of 3 sites",
        ),
        (
            lambda plan: replace(plan, secure_aggregation=SecureAggregation(4)),
            "totals over 4 of 3 sites",
        ),
        (lambda plan: replace(plan, sites=tuple("abcdefgh")), "totals over 3 of 8 sites"),
        (unlisted, "values of 'sex' are not listed"),
    ],
)
def test_what_cannot_be_masked_is_refused_by_name(
    change: Callable[[NetworkPlan], NetworkPlan], reason: str, plan: NetworkPlan
) -> None:
    with pytest.raises(RefusedError, match=f"it asks for masked sums, but .*{reason}"):
        plan_from_bytes(plan_to_bytes(change(plan)), "it")
    plan_from_bytes(plan_to_bytes(replace(change(plan), secure_aggregation=None)), "it")


def test_a_site_that_agreed_to_masked_sums_agreed_to_nothing_else(plan: NetworkPlan) -> None:
    assert digest_of(plan) != digest_of(replace(plan, secure_aggregation=None))
    # Over how many sites depends on who takes part.
    more = replace(
        plan, sites=tuple("abcdefgh"), secure_aggregation=SecureAggregation(threshold_for(8))
    )
    assert digest_of(plan) == digest_of(more)


@pytest.mark.parametrize(("sites", "least"), [(3, 3), (4, 3), (5, 4), (6, 5), (10, 7), (100, 67)])
def test_no_two_thirds_of_the_sites_have_less_than_a_third_in_common(
    sites: int, least: int
) -> None:
    assert threshold_for(sites) == least
    assert 3 * (2 * least - sites) > sites
