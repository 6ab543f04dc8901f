"""A site's own table, read once per job by the agreed schema, within the site's policy."""

from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import MethodChoice, Source, TableConfig
from fedminmax.data.tables.held_out import hold_out
from fedminmax.data.tables.holder_summary import HolderSummary
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.sources import read_source
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.federation.wire_vectors import RefusedError


def read_training_rows(plan: NetworkPlan, settings: SiteSettings, site: str) -> ParsedRows:
    """Read the site's table and leave out the rows that are held out for testing."""
    _check_columns(plan, settings)
    owner = settings.owner or site
    config = TableConfig(
        training=(),
        test=(),
        holder_column=settings.holder_column,
        held_out=plan.held_out,
        seed=plan.seed,
        delimiter=plan.delimiter,
        schema=plan.schema,
        model=plan.model,
        method=MethodChoice("fedavg", {}, 1, 1.0),
    )
    source = Source(settings.data, None if settings.holder_column else owner)
    own = [part for part in read_source(source, config).parts if part.owner == owner]
    if not own:
        raise InputError(f"{settings.data} has no rows of '{owner}'; correct the owner's name")
    rows = own[0].rows
    train, _ = hold_out(rows, plan.held_out, plan.seed, owner)
    return rows.take(train)


def check_groups(summary: HolderSummary, settings: SiteSettings) -> None:
    """Refuse to tell of a group that is smaller than the site allows."""
    for key, count in summary.group_counts.items():
        if count < settings.minimum_group:
            name = " / ".join(value or "missing" for value in key)
            raise RefusedError(
                f"group '{name}' has fewer than {settings.minimum_group} rows here, "
                "and this site's policy does not tell of smaller ones"
            )


def _check_columns(plan: NetworkPlan, settings: SiteSettings) -> None:
    if settings.columns is None:
        return
    for column in plan.schema.columns:
        if column not in settings.columns:
            raise RefusedError(f"column '{column}' is not among those that this site agreed to")
