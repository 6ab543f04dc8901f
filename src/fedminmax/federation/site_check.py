"""A site's table as a job would read it, looked at without any network."""

from dataclasses import dataclass, replace

from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.data_warnings import constant_target_warnings, leak_warnings
from fedminmax.data.tables.groups import GroupKey, group_name, sort_groups
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.data.tables.schema import Schema
from fedminmax.federation.group_policy import (
    group_counts,
    rows_to_measure,
    small_groups,
    within_policy,
)
from fedminmax.federation.network_plan import SiteRules, digest_of
from fedminmax.federation.planned_runs import plan_of_config
from fedminmax.federation.site_rows import read_own_rows
from fedminmax.federation.site_settings import SiteSettings, SmallGroups
from fedminmax.federation.what_leaves import what_leaves

CHECK = "check"


@dataclass(frozen=True)
class SiteCheck:
    """The groups that the site would tell of, with their training rows, and what would leave.

    ``hidden`` are the site's own groups that it would not tell of by themselves; ``warnings`` are
    for the site alone.
    """

    groups: dict[str, int]
    hidden: dict[str, int]
    leaves: tuple[str, ...]
    warnings: tuple[str, ...]


def agree_to(config: TableConfig, settings: SiteSettings, site: str) -> SiteSettings:
    """Return the settings of a site that agrees to this configuration, and to no other."""
    plan = plan_of_config(config, CHECK, [site], SiteRules())
    return replace(
        settings,
        columns=config.schema.columns,
        plan=digest_of(plan),
        most_rounds=max(run.rounds for run in plan.runs),
    )


def check_site(config: TableConfig, settings: SiteSettings, site: str) -> SiteCheck:
    """Read the table as a job would; refuse what does not fit or the site's policy forbids."""
    schema = config.schema
    plan = plan_of_config(config, CHECK, [site], SiteRules())
    own = read_own_rows(plan, settings, site)
    small = sort_groups(small_groups(own.train, settings), schema)
    if small and settings.small_groups is SmallGroups.REFUSE:
        raise InputError(
            f"group '{group_name(small[0], schema)}' has fewer than {settings.minimum_group} rows "
            "here, and this site's policy does not tell of smaller ones; merge them with "
            "--small-groups merge, or do not take part"
        )
    rows = within_policy(own, schema, settings)
    told, known = group_counts(rows.train), group_counts(own.train)
    # Groups without a training row here may have some elsewhere: they are named as well.
    held_out = rows.held_out
    measured = group_counts(rows_to_measure(held_out, held_out.group_keys, settings))
    return SiteCheck(
        _by_name(told, schema),
        _by_name({key: count for key, count in known.items() if key not in told}, schema),
        tuple(what_leaves(config, rows.train, list(_by_name(measured, schema)))),
        (
            *own.warnings,
            *constant_target_warnings({site: summarise(own.train, schema)}, schema),
            *leak_warnings([own.train], schema),
        ),
    )


def _by_name(counts: dict[GroupKey, int], schema: Schema) -> dict[str, int]:
    return {group_name(key, schema): counts[key] for key in sort_groups(counts, schema)}
