"""What a site has once it has taken a plan, and how it agrees on categories without a list.

What the site discloses for that is written down in its journal before it leaves, and a question
with other totals is another question: there is one answer in a run, or a few without masks.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fedminmax.config.schema import Schema
from fedminmax.core.errors import InputError
from fedminmax.data.tables.agreed_values import check_totals, common_values, complete, with_values
from fedminmax.data.tables.codes import check_own_codes
from fedminmax.data.tables.site_summary import SiteSummary, summarise, without_counts
from fedminmax.network.secure.layouts import Layouts
from fedminmax.network.secure.messages import Ask
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import SiteRows, read_rows
from fedminmax.network.site.privacy import PrivateAnswers
from fedminmax.network.site.sender import Asked, MaskedSender, PlainSender
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.network.wire.endpoints import Endpoint, Question
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.values import (
    MAX_NAMES_BYTES,
    by_column,
    check_counts,
    check_names,
    counts_of,
    max_totals_bytes,
    totals_from_bytes,
    values_from_bytes,
    values_to_bytes,
)

SERVER = "the server"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A site's rows, their summary, and how answers leave.

    ``came`` is the plan as it was sent; the ``plan`` has the categories that were agreed on since.
    """

    came: NetworkPlan
    plan: NetworkPlan
    rows: SiteRows
    summary: SiteSummary
    sender: PlainSender | MaskedSender
    private: PrivateAnswers | None


def prepared(
    plan: NetworkPlan,
    settings: SiteSettings,
    site: str,
    folder: Path,
    sender: PlainSender | MaskedSender,
) -> Prepared:
    """Read the site's table for a plan."""
    rows = read_rows(plan, settings, site)
    summary = summarise(rows.train, plan.schema)
    private = None
    if plan.privacy is not None:
        private = PrivateAnswers(plan, settings, folder)
        private.check(len(rows.train))
        summary = without_counts(summary)
    return Prepared(plan, plan, rows, summary, sender, private)


def count_values(job: Prepared, ask: Ask | None) -> bytes:
    """Return the counts by bucket of values of columns without a list."""
    asked, counts = Asked(Question(Endpoint.COUNT_VALUES), ask=ask), _own_counts(job)
    if isinstance(job.sender, MaskedSender):
        return job.sender.send_counts_of_values(asked, lambda: {"counts": counts})
    return job.sender.send(asked, lambda: {"counts": counts}, Layouts.counts)


def _own_counts(job: Prepared) -> Tensor:
    return counts_of(job.rows.train.features, job.plan.schema)


def name_values(job: Prepared, totals: object, journal: Journal) -> bytes:
    """Name this site's values that are common enough by these totals, of each open column."""
    schema, rows = job.plan.schema, job.rows.train.features
    content = checked_bytes(totals, max_totals_bytes(schema), SERVER)
    claimed = _claimed(job, content)
    journal.allow(Question(Endpoint.NAME_VALUES), content)
    names = {
        column: common_values(rows, column, counts)
        for column, counts in by_column(claimed, schema).items()
    }
    return values_to_bytes(names)


def take_values(
    job: Prepared, totals: object, values: object, journal: Journal, site: str
) -> Prepared:
    """Return the plan, rows and summary with the categories that all sites agreed on."""
    before = job.plan.schema
    told = checked_bytes(totals, max_totals_bytes(before), SERVER)
    content = checked_bytes(values, MAX_NAMES_BYTES, SERVER)
    lists, claimed = values_from_bytes(content, before, SERVER), _claimed(job, told)
    check_names(lists, claimed, before, SERVER)
    journal.allow(Question(Endpoint.TAKE_VALUES), told, content)
    schema = with_values(before, {column: [own] for column, own in lists.items()})
    rows, plan = completed_rows(job.rows, schema), replace(job.plan, schema=schema)
    summary = summarise(rows.train, schema)
    check_own_codes(summary, schema, site)
    if isinstance(job.sender, MaskedSender):
        job.sender.agree_on_values(told + content, plan)
    return replace(job, plan=plan, rows=rows, summary=summary)


def completed_rows(rows: SiteRows, schema: Schema) -> SiteRows:
    """Return rows whose codes count the agreed categories."""
    validation = None if rows.validation is None else complete(rows.validation, schema)
    train, held_out = complete(rows.train, schema), complete(rows.held_out, schema)
    return replace(rows, train=train, held_out=held_out, validation=validation)


def _claimed(job: Prepared, message: bytes) -> Tensor:
    """Return the totals that the server claims; refuse those that would open too many buckets."""
    plan = job.plan
    totals = totals_from_bytes(message, plan.schema, SERVER)
    check_counts(totals, plan.schema, plan.site_rules.max_rows * len(plan.sites), SERVER)
    try:
        for column, counts in by_column(totals, plan.schema).items():
            check_totals(counts, column)
    except InputError as error:
        raise RefusedError(f"{SERVER} sent totals by which {error}") from error
    return totals
