"""A site's own table, read once per job by the agreed schema, within the site's policy."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.core.randomness import Purpose
from fedminmax.data.tables.config import MethodChoice, Source, TableConfig
from fedminmax.data.tables.file_format import check_format
from fedminmax.data.tables.groups import check_listed
from fedminmax.data.tables.held_out import hold_out
from fedminmax.data.tables.sources import read_source
from fedminmax.federation.group_policy import SiteRows, within_policy
from fedminmax.federation.network_plan import NetworkPlan, digest_of
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.federation.wire_vectors import RefusedError


def read_rows(
    plan: NetworkPlan, settings: SiteSettings, site: str, roster: Sequence[str] | None = None
) -> SiteRows:
    """Read the site's table, with small groups refused or merged as its policy says."""
    _check_company(plan, settings, roster)
    rows = within_policy(read_own_rows(plan, settings, site), plan.schema, settings)
    return with_validation(rows, plan, settings, settings.owner or site)


def with_validation(
    rows: SiteRows, plan: NetworkPlan, settings: SiteSettings, owner: str
) -> SiteRows:
    """Set validation rows aside; those of a group with too few of them here stay training rows.

    The losses of fewer rows than the site's minimum are not told of.
    """
    train = rows.train
    _, drawn = hold_out(train, plan.validation, plan.seed, owner, Purpose.VALIDATION)
    counts = np.bincount(train.group[drawn], minlength=len(train.group_keys))
    drawn = drawn[counts[train.group[drawn]] >= settings.minimum_group]
    left = np.setdiff1d(np.arange(len(train)), drawn)
    own = train.take(left) if len(drawn) else train
    return replace(rows, train=own, validation=train.take(drawn))


def read_own_rows(plan: NetworkPlan, settings: SiteSettings, site: str) -> SiteRows:
    """Read the site's table as it is, for its own eyes, and split off the held-out rows."""
    _check_agreed(plan, settings)
    owner = settings.owner or site
    config = TableConfig(
        training=(),
        test=(),
        holder_column=settings.holder_column,
        held_out=plan.held_out,
        seed=plan.seed,
        format=check_format(settings.format.apply(plan.format), "this site's"),
        schema=plan.schema,
        model=plan.model,
        method=MethodChoice("fedavg", {}, 1, 1.0),
    )
    source = Source(settings.data, None if settings.holder_column else owner)
    read = read_source(source, config)
    own = [part for part in read.parts if part.owner == owner]
    if not own:
        raise InputError(f"{settings.data} has no rows of '{owner}'; correct the owner's name")
    rows = own[0].rows
    check_listed(rows.group, rows.group_keys, plan.schema, own[0].source)
    train, held_out = hold_out(rows, plan.held_out, plan.seed, owner)
    return SiteRows(rows.take(train), rows.take(held_out), read.warnings)


def _check_agreed(plan: NetworkPlan, settings: SiteSettings) -> None:
    """Refuse a plan that the site did not agree to; the reason goes to the server."""
    _check_columns(plan, settings)
    if settings.plan is not None and digest_of(plan) != settings.plan:
        raise RefusedError(
            "the plan is not the configuration that this site checked; send it the new one"
        )
    longest = max(run.rounds for run in plan.runs)
    if settings.most_rounds is not None and longest > settings.most_rounds:
        raise RefusedError(
            f"the plan has {counted(longest, 'round')}, this site agreed to at most "
            f"{settings.most_rounds:,}"
        )


def _check_company(plan: NetworkPlan, settings: SiteSettings, roster: Sequence[str] | None) -> None:
    """Refuse a plan whose results could be those of too few sites, or of sites that are not."""
    if plan.minimum_sites < settings.minimum_sites:
        raise RefusedError(
            f"the plan has {counted(len(plan.sites), 'site')} and may go on with "
            f"{plan.minimum_sites}, this site's policy asks for at least "
            f"{settings.minimum_sites}; give --minimum-sites "
            f"{settings.minimum_sites}"
        )
    if roster is not None and not {*plan.sites} <= {*roster}:
        raise RefusedError("the plan has sites that are not in this federation's signed list")


def _check_columns(plan: NetworkPlan, settings: SiteSettings) -> None:
    if settings.columns is None:
        return
    for column in plan.schema.columns:
        if column not in settings.columns:
            raise RefusedError(f"column '{column}' is not among those that this site agreed to")
