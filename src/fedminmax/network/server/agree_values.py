"""How sites agree on the categories of columns without a list, before everything else.

What they agreed on is kept with the run, so that a resumed run tells the sites the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import torch
from torch import Tensor

from fedminmax.config.schema import Schema
from fedminmax.core.errors import InputError
from fedminmax.data.tables.agreed_values import check_totals, with_values
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.network.server.disk import read_record, write_record
from fedminmax.network.server.sites import Received, Sites
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.endpoints import Endpoint
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.transport import Transport, gather
from fedminmax.network.wire.values import by_column, names_from_bytes, totals_to_bytes

VALUES_FILE = "values.json"


@dataclass(frozen=True)
class KeptValues:
    """Rows of all sites by bucket, and the values that they agreed on, by column."""

    totals: tuple[int, ...]
    values: dict[str, tuple[str, ...]]


def agree_on_values(
    plan: NetworkPlan, sites: Sites, folder: Path, refused: Mapping[str, str]
) -> tuple[NetworkPlan, Received[SiteSummary]]:
    """Return the plan with the agreed categories, and the summaries of all rows with them.

    ``refused`` says why sites did not take the plan.
    """
    path = folder / VALUES_FILE
    kept = read_record(path, KeptValues, "start a new run")
    if kept is None:
        kept = _agreed(plan, sites, refused)
        write_record(path, kept)
    schema = with_values(plan.schema, {name: [own] for name, own in kept.values.items()})
    told = replace(plan, schema=schema)
    received = sites.take_values(torch.tensor(kept.totals), kept.values, told)
    return told, replace(received, failures={**received.failures, **refused})


def _agreed(plan: NetworkPlan, sites: Sites, refused: Mapping[str, str]) -> KeptValues:
    counted = sites.count_values()
    _check_enough(plan, len(counted.records), {**counted.reasons, **refused})
    totals = reduce(add, counted.records.values())
    for column, counts in by_column(totals, plan.schema).items():
        check_totals(counts, column)
    named = sites.name_values(totals, tuple(counted.records))
    _check_enough(plan, len(named.records), {**named.reasons, **refused})
    columns = plan.schema.open_columns
    by_site = {column: [own[column] for own in named.records.values()] for column in columns}
    completed = with_values(plan.schema, by_site)
    lists = {feature.column: feature.categories for feature in completed.features}
    return KeptValues(tuple(totals.tolist()), {column: lists.get(column, ()) for column in columns})


def _check_enough(plan: NetworkPlan, replies: int, reasons: Mapping[str, str]) -> None:
    if replies < plan.minimum_replies:
        raise InputError(
            f"{replies} of {len(plan.sites)} sites can take part, at least {plan.minimum_sites} "
            f"are needed ({'; '.join(reasons.values())})"
        )


def names_of_all(
    transport: Transport, sites: Sequence[str], totals: Tensor, schema: Schema
) -> dict[str, tuple[str, ...]]:
    """Return the common values of these sites, none of which may be missing."""
    answers = gather(transport(sites, Endpoint.NAME_VALUES, {"totals": totals_to_bytes(totals)}))
    if answers.failures:
        reasons = "; ".join(answers.failures.values())
        raise RefusedError(f"sites went away before the first round ({reasons}); resume")
    by_site = [
        names_from_bytes(message, totals, schema, site)
        for site, message in answers.messages.items()
    ]
    return {
        column: tuple(sorted({value for own in by_site for value in own[column]}))
        for column in schema.open_columns
    }
