"""What would leave a site for a configuration, found out without any network."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.groups import group_name, sort_groups
from fedminmax.data.tables.holder_summary import HolderSummary, summarise
from fedminmax.data.tables.schema import Kind
from fedminmax.federation.network_plan import NetworkPlan, PlannedRun
from fedminmax.federation.site_rows import check_groups, read_training_rows
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.methods.catalogue import CARDS


@dataclass(frozen=True)
class SiteCheck:
    """A site's groups with their training rows, and what would leave, in plain words."""

    groups: dict[str, int]
    leaves: tuple[str, ...]


def check_site(config: TableConfig, settings: SiteSettings, site: str) -> SiteCheck:
    """Read the table as a job would; refuse what does not fit or the site's policy forbids."""
    plan = plan_for_one(config, site)
    summary = summarise(read_training_rows(plan, settings, site), config.schema)
    check_groups(summary, settings)
    names = {
        group_name(key, config.schema): summary.group_counts[key]
        for key in sort_groups(summary.group_counts, config.schema)
    }
    return SiteCheck(names, tuple(_leaves(config, summary)))


def plan_for_one(config: TableConfig, site: str) -> NetworkPlan:
    """Return the configuration's job as this site alone would see it."""
    choice = config.method
    return NetworkPlan(
        run="check",
        sites=(site,),
        schema=config.schema,
        model=config.model,
        runs=(PlannedRun(choice.name, choice.options, choice.rounds, choice.participation),),
        held_out=config.held_out,
        seed=config.seed,
        delimiter=config.delimiter,
    )


def _leaves(config: TableConfig, summary: HolderSummary) -> Iterator[str]:
    features = config.schema.features
    categories = [feature.column for feature in features if feature.kind is Kind.CATEGORY]
    quantities = [feature.column for feature in features if feature.kind is not Kind.CATEGORY]
    yield f"once: the rows of each of {len(summary.strata)} pairs of group and class"
    if categories:
        yield f"once: how often each listed category occurs in {', '.join(categories)}"
    if quantities:
        yield f"once: count, sum and sum of squares of {', '.join(quantities)}"
    method = config.method
    yield (
        f"in each of {method.rounds:,} rounds: loss sums and row counts by group, and one vector "
        f"as long as the model. {method.name} uses {CARDS[method.name].reveals}; whoever runs the "
        "server can look at yours by itself"
    )
