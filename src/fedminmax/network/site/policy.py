"""A site's own table, read once per job with the agreed schema, within the site's policy.

A site discloses nothing about a group with fewer rows than its policy allows. It may merge its
small groups into one. Every site gives the merged group the same key, so the server has one such
group, whichever groups each site merged. If sensitive attributes are also features, the features of
a merged row do not show its protected values either.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from fedminmax.config.file_format import check_format
from fedminmax.config.planned_runs import needs_learning_rate
from fedminmax.config.read import Source
from fedminmax.config.schema import Kind, Schema
from fedminmax.core.bounds import POWER_ITERATIONS
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Order
from fedminmax.core.randomness import Purpose
from fedminmax.core.text import counted
from fedminmax.data.tables.bins import REFINEMENTS
from fedminmax.data.tables.codes import check_own_codes
from fedminmax.data.tables.encoding import Encoding, unsmoothed, with_directions
from fedminmax.data.tables.groups import GroupKey, check_listed, merged_key, sort_groups
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.site_summary import summarise
from fedminmax.data.tables.sources import hold_out, read_file_rows
from fedminmax.methods.card import max_members
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod, asks_again
from fedminmax.methods.shared.frontier_server import models_of
from fedminmax.network.site.settings import SiteSettings, SmallGroups
from fedminmax.network.wire.calls import Question
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, digest_of, threshold_for
from fedminmax.training.additive_class import MAX_QUESTIONS
from fedminmax.training.certify import MAX_ROUNDS

# A masked total takes the question itself, and a call to unmask the answers.
CALLS_PER_TOTAL = 2
# Where a site was away, the rounds that a continued run repeats have other models than before.
ROOM_FOR_REPEATS = 2
SERVER = "the server"


@dataclass(frozen=True, eq=False)
class SiteRows:
    """A site's rows: training rows, and rows held out to measure the trained model.

    ``validation`` are those to choose the round, once they are set aside from the training rows.
    ``warnings`` about the table are for the site only.
    """

    train: ParsedRows
    held_out: ParsedRows
    warnings: tuple[str, ...] = ()
    validation: ParsedRows | None = None


def within_policy(rows: SiteRows, schema: Schema, settings: SiteSettings) -> SiteRows:
    """Merge small groups if the site wants that; otherwise refuse to disclose them.

    The reason is sent to the server, so it names no group.
    """
    if settings.small_groups is SmallGroups.MERGE:
        return _merge(rows, schema, settings.suppress_below)
    if small_groups(rows.train, settings):
        raise RefusedError(
            f"a group has fewer than {settings.suppress_below} rows here, and this site's policy "
            "does not disclose smaller groups"
        )
    return rows


def small_groups(train: ParsedRows, settings: SiteSettings) -> tuple[GroupKey, ...]:
    """Return the groups with too few training rows for the site to disclose."""
    counts = group_counts(train)
    return tuple(key for key, count in counts.items() if count < settings.suppress_below)


def rows_to_measure(
    held_out: ParsedRows, known: Collection[GroupKey], settings: SiteSettings
) -> ParsedRows:
    """Return the held-out rows that may be counted in results.

    These are the rows of groups that training knows, with at least the site's minimum of held-out
    rows here; the others are not disclosed, not even within a total.
    """
    counts = group_counts(held_out)
    reported = [
        key in known and counts.get(key, 0) >= settings.suppress_below
        for key in held_out.group_keys
    ]
    return held_out.take(np.flatnonzero(np.array(reported, dtype=bool)[held_out.group]))


def group_counts(rows: ParsedRows) -> dict[GroupKey, int]:
    """Return the rows of each group, without empty groups."""
    counts = np.bincount(rows.group, minlength=len(rows.group_keys)).tolist()
    return {key: count for key, count in zip(rows.group_keys, counts, strict=True) if count}


def _merge(rows: SiteRows, schema: Schema, minimum: int) -> SiteRows:
    kept = _kept_groups(group_counts(rows.train), schema, minimum)
    train = _hide_protected(_with_merged(rows.train, kept, schema), schema)
    # Only scores of held-out rows are disclosed, so the model sees their real values.
    return SiteRows(train, _with_merged(rows.held_out, kept, schema))


def _kept_groups(
    counts: Mapping[GroupKey, int], schema: Schema, minimum: int
) -> tuple[GroupKey, ...]:
    """Return the groups that are not merged.

    If all small groups together are still too small, the smallest of the others joins them.
    """
    large = [key for key in sort_groups(counts, schema) if counts[key] >= minimum]
    merged = sum(count for count in counts.values() if count < minimum)
    if merged == 0 or merged >= minimum:
        return tuple(large)
    if not large:
        raise RefusedError(
            f"this site has fewer than {minimum} training rows in all, and its policy does not "
            "disclose smaller groups"
        )
    smallest = min(large, key=lambda key: counts[key])
    return tuple(key for key in large if key != smallest)


def _with_merged(rows: ParsedRows, kept: tuple[GroupKey, ...], schema: Schema) -> ParsedRows:
    """Merge the rows of all groups but these into one group, which comes last."""
    places = {key: place for place, key in enumerate(kept)}
    place_of = np.array([places.get(key, len(kept)) for key in rows.group_keys], np.int64)
    return replace(rows, group=place_of[rows.group], group_keys=(*kept, merged_key(schema)))


def _hide_protected(rows: ParsedRows, schema: Schema) -> ParsedRows:
    """Mark sensitive attributes that are features as missing in rows of the merged group.

    Otherwise counts of their categories and the model's step would disclose small groups.
    """
    merged = rows.group == len(rows.group_keys) - 1
    protected = {entry.column for entry in schema.protected}
    missing = {
        feature.column: np.int32(len(rows.features.values.get(feature.column, feature.categories)))
        for feature in schema.features
    }
    quantities = {
        column: np.where(merged, np.nan, values) if column in protected else values
        for column, values in rows.features.quantities.items()
    }
    codes = {
        column: np.where(merged, missing[column], values) if column in protected else values
        for column, values in rows.features.codes.items()
    }
    return replace(rows, features=replace(rows.features, quantities=quantities, codes=codes))


def check_plan(plan: NetworkPlan, settings: SiteSettings, roster: Sequence[str]) -> None:
    """Refuse a plan that this site's policy does not allow, whatever its table has in it."""
    _check_audit(plan)
    _check_company(plan, settings, roster)
    _check_agreed(plan, settings)


def read_rows(plan: NetworkPlan, settings: SiteSettings, site: str) -> SiteRows:
    """Read the site's table, with small groups refused or merged as its policy says."""
    rows = within_policy(read_own_rows(plan, settings, site), plan.schema, settings)
    return with_validation(rows, plan, settings, settings.owner or site)


def with_validation(
    rows: SiteRows, plan: NetworkPlan, settings: SiteSettings, owner: str
) -> SiteRows:
    """Set validation rows aside; a group with too few of them keeps them as training rows.

    The losses of fewer rows than the site's minimum are not disclosed.
    """
    train = rows.train
    _, drawn = hold_out(
        train, plan.validation, seed=plan.seed, site=owner, purpose=Purpose.VALIDATION
    )
    counts = np.bincount(train.group[drawn], minlength=len(train.group_keys))
    drawn = drawn[counts[train.group[drawn]] >= settings.suppress_below]
    left = np.setdiff1d(np.arange(len(train)), drawn)
    own = train.take(left) if len(drawn) else train
    return replace(rows, train=own, validation=train.take(drawn))


def read_own_rows(plan: NetworkPlan, settings: SiteSettings, site: str) -> SiteRows:
    """Read the site's table without its policy, for local use, and split off held-out rows."""
    _check_agreed(plan, settings)
    owner = settings.owner or site
    own_format = check_format(settings.file_format.apply(plan.format), "this site's")
    source = Source(settings.data, None if settings.site_column else owner, own_format)
    read = read_file_rows(source, plan.schema, settings.site_column)
    own = [part for part in read.parts if part.owner == owner]
    if not own:
        raise InputError(f"{settings.data} has no rows of '{owner}'; correct the owner's name")
    rows = own[0].rows
    check_listed(rows.group, rows.group_keys, plan.schema, own[0].source)
    check_own_codes(summarise(rows, plan.schema), plan.schema, owner)
    by_row = plan.privacy is not None
    train, held_out = hold_out(rows, plan.held_out, seed=plan.seed, site=owner, by_row=by_row)
    return SiteRows(rows.take(train), rows.take(held_out), read.warnings)


def _check_agreed(plan: NetworkPlan, settings: SiteSettings) -> None:
    """Refuse a plan that the site did not agree to; the reason is sent to the server."""
    _check_columns(plan, settings)
    if settings.plan is not None and digest_of(plan) != settings.plan:
        raise RefusedError(
            "the plan is not the configuration that this site checked; send it the new one"
        )
    longest = max((run.rounds for run in plan.runs), default=0)
    if settings.max_rounds is not None and longest > settings.max_rounds:
        raise RefusedError(
            f"the plan has {counted(longest, 'round')}, this site agreed to at most "
            f"{settings.max_rounds:,}"
        )


def _check_company(plan: NetworkPlan, settings: SiteSettings, roster: Sequence[str]) -> None:
    """Refuse a plan whose results may come from too few sites, or from sites that do not exist."""
    if plan.minimum_sites < settings.minimum_sites:
        raise RefusedError(
            f"the plan has {counted(len(plan.sites), 'site')} and may go on with "
            f"{plan.minimum_sites}, this site's policy asks for at least "
            f"{settings.minimum_sites}; give --minimum-sites "
            f"{settings.minimum_sites}"
        )
    masked = plan.secure_aggregation
    if masked is not None and masked.threshold < settings.minimum_sites:
        raise RefusedError(
            f"the plan's totals may be over {masked.threshold} sites, this site's policy asks for "
            f"at least {settings.minimum_sites}; give --minimum-sites {settings.minimum_sites}"
        )
    if not {*plan.sites} <= {*roster}:
        raise RefusedError("the plan has sites that are not in this federation's signed list")
    if masked is None:
        return
    if not masked.same_sites and not settings.allow_other_sites:
        raise RefusedError(
            "the plan's totals may be over different sites, whose difference tells about single "
            "ones; this site's policy does not allow it (fedminmax site check --allow-other-sites)"
        )
    if masked.same_sites and masked.threshold < len(plan.sites):
        everyone = counted(len(plan.sites), "site")
        raise RefusedError(
            f"the plan's totals are over the same {everyone}, but {masked.threshold} would do; "
            f"give all {len(plan.sites)} as the threshold"
        )
    # A plan for few of many sites would need few helpers to tell of one of them.
    lowest = threshold_for(len(roster))
    if masked.threshold < lowest:
        raise RefusedError(
            f"the plan's totals may be over {masked.threshold} of the federation's {len(roster)} "
            f"sites, at least {lowest} are needed; give --minimum-sites {lowest}"
        )


def _check_audit(plan: NetworkPlan) -> None:
    """Refuse a plan without runs that measures nothing, or trains or sets rows aside besides."""
    if bool(plan.runs) == bool(plan.audit):
        raise RefusedError(f"{SERVER} sent a plan that neither trains nor audits, or does both")
    columns = [*dict.fromkeys(column for own in plan.audit for column in own)]
    numbers = [own.column for own in plan.schema.features if own.kind is Kind.NUMERIC]
    trains = plan.held_out or plan.validation or plan.certify or plan.privacy
    if plan.audit and (columns != numbers or len(plan.schema.features) > len(columns) or trains):
        raise RefusedError(f"{SERVER} sent an audit of more than columns of predictions; refused")


def _check_columns(plan: NetworkPlan, settings: SiteSettings) -> None:
    if settings.columns is None:
        return
    for column in plan.schema.columns:
        if column not in settings.columns:
            raise RefusedError(f"column '{column}' is not among those that this site agreed to")


@dataclass(frozen=True)
class Limits:
    """How many runs on the same data, different answers about a round, and questions in a run.

    Totals are over ``threshold`` sites at least; with ``allow_other_sites`` they may be over any
    sets of so many. With ``sync``, an allowed question is on the disk before its answer leaves,
    even if the power fails.
    """

    runs: int
    answers: int
    questions: int
    _: KW_ONLY
    threshold: int = 0
    allow_other_sites: bool = False
    sync: bool = False


def planned_questions(plan: NetworkPlan) -> int:
    """Return how many calls a site gets at most in a run that nothing disturbs.

    Before the rounds: the plan and the encoding, and directions for the learning rate if it is
    open. Then the rounds with all their phases and their models' validation, the proof, and scores.
    """
    totals = sum(
        run.rounds * (1 + asks_again(CARDS[run.method].build({})) + (plan.validation > 0))
        for run in plan.runs
    )
    totals += MAX_ROUNDS * plan.certify + 1
    others = 2
    if plan.model.has_codes:
        # Counts in cells, then sums for smoothing and pairs, which a second encoding has.
        totals, others = totals + 1 + REFINEMENTS + MAX_QUESTIONS, others + 1
    if plan.schema.open_columns:
        # Counts by bucket, then names, and the agreed lists.
        totals, others = totals + 1, others + 2
    if needs_learning_rate(plan.runs):
        # Under a privacy guarantee the rate follows from the noisy census.
        totals += POWER_ITERATIONS * (plan.privacy is None)
        others += 1
    if plan.secure_aggregation is None:
        return totals + others
    # Summary and counts are separate questions, after the keys and everybody's keys.
    return CALLS_PER_TOTAL * (totals + 2) + others + 2


def limits_of(plan: NetworkPlan, settings: SiteSettings) -> Limits:
    """Return what a site allows in a run of this plan."""
    masked = plan.secure_aggregation
    return Limits(
        settings.max_runs,
        # Of masked answers two would be two totals, and with the same noise show their difference.
        settings.max_answers if masked is None else 1,
        ROOM_FOR_REPEATS * planned_questions(plan),
        threshold=0 if masked is None else masked.threshold,
        allow_other_sites=settings.allow_other_sites,
        sync=plan.privacy is not None,
    )


def check_order(question: Question, order: Order, plan: NetworkPlan) -> None:
    """Refuse a round that the plan does not have."""
    planned = plan.runs[question.run]
    if not 1 <= question.round <= planned.rounds:
        raise RefusedError(f"{SERVER} asks for round {question.round} of {planned.rounds}")
    if question.phase and question.phase >= CARDS[planned.method].requests:
        raise RefusedError(f"{SERVER} asks {planned.method} too often in a round")
    if order.key.seed != plan.seed:
        raise RefusedError(f"{SERVER} sent another seed than its plan's")


def check_stage(question: Question, stage: object) -> None:
    """Refuse a question that says another stage of an agreement than its content has."""
    if stage != question.round:
        raise RefusedError(f"{SERVER} asks for stage {stage!r} of {question}, not {question.round}")


def check_encoding(came: Encoding, plan: NetworkPlan, before: Encoding | None) -> None:
    """Refuse an encoding for another plan, and a second one that changes the codes of rows.

    That of an additive model comes again once smoothing and pairs are chosen.
    """
    if came.schema != plan.schema:
        raise RefusedError(f"{SERVER} sent an encoding of another schema than its plan's")
    on_effects = plan.model.has_codes and not plan.model.is_additive
    of_another = came.is_coded != plan.model.has_codes
    if of_another or bool(came.inputs) != (on_effects and came.stage > 0):
        raise RefusedError(f"{SERVER} sent an encoding for another kind of model than its plan's")
    if came != with_directions(came, plan.model.monotone):
        raise RefusedError(f"{SERVER} sent an encoding with other monotone effects than its plan's")
    if before is not None and (came.stage <= before.stage or unsmoothed(came) != before):
        raise RefusedError(f"{SERVER} sent a second encoding")


def check_models(
    runs: Sequence[Tensor], methods: Sequence[AnyMethod[Any]], plan: NetworkPlan
) -> None:
    """Refuse to measure more models than a run can return."""
    asked = [
        (method, planned)
        for method, planned in zip(methods, plan.runs, strict=True)
        for _ in range(models_of(method))
    ]
    for members, (method, planned) in zip(runs, asked, strict=True):
        most = max_members(method, planned.rounds)
        if len(members) > most:
            raise RefusedError(
                f"{SERVER} sent {len(members)} models of {planned.method}, which has {most}"
            )
