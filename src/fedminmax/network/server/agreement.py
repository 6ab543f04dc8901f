"""What all sites agree on before the first round: the encoding, the row counts, the learning rate.

It is stored with the checkpoints, so that a resumed run has the same encoding and the same counts,
even if a site is absent at that time.

Where the plan leaves the learning rate open, it comes from the power iteration of ``core.bounds``,
with sums over sites. Every group has a direction of its own, and all of them travel in one message.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from fedminmax.core.bounds import (
    POWER_ITERATIONS,
    UNKNOWN_LENGTHS,
    RowLengths,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
)
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.data.tables.codes import check_same_codes
from fedminmax.data.tables.encoding import (
    Encoding,
    agree_on_encoding,
    encoding_as_json,
    encoding_from_json,
    row_lengths,
)
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.network.planned_runs import needs_learning_rate, with_rate
from fedminmax.network.server.transport import Transport, gather
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import vector_from_bytes, vector_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, max_rows_set_aside, plan_to_bytes, task_of
from fedminmax.network.wire.summary import summary_from_bytes

ROUNDING = 1e-4
AGREEMENT_FILE = "agreement.json"
RowCount = Annotated[int, Field(ge=0, lt=2**53, strict=True)]


def agree_on_rate(
    plan: NetworkPlan,
    encoding: Encoding,
    counts: Mapping[str, Sequence[int]],
    lengths: Mapping[str, RowLengths],
    transport: Transport,
) -> tuple[str, dict[str, str]]:
    """Return the largest learning rate that is safe for all groups, as text, and refused sites.

    A site that does not reply is skipped in the sums, and in the counts that divide them.
    """
    refused: dict[str, str] = {}
    start = first_direction(len(encoding.names), torch.float64)
    directions = start.repeat(len(encoding.groups), 1)
    sizes = directions.new_ones(len(encoding.groups))
    for _ in range(POWER_ITERATIONS):
        directions = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-300)
        sums = torch.zeros_like(directions)
        rows = torch.zeros(len(directions), dtype=torch.float64)
        payload = {"directions": vector_to_bytes(directions.flatten())}
        asked = tuple(site for site in counts if site not in refused)
        answers = gather(transport(asked, "curvature", payload))
        for site in counts:
            if site not in answers.messages:
                continue
            try:
                own = vector_from_bytes(answers.messages[site], directions.flatten(), site)
                _check_curvature(own.reshape(sums.shape), directions, lengths[site], site)
            except RefusedError as error:
                refused[site] = str(error)
                continue
            sums += own.reshape(sums.shape)
            rows += torch.tensor(counts[site], dtype=torch.float64)
        # Rows have a 1 appended, so sums of 0 mean that there are no rows.
        if not bool(sums.any()):
            reasons = "; ".join([*answers.failures.values(), *refused.values()])
            raise InputError(
                f"no site helped to find a safe learning rate ({reasons}); set learning_rate in "
                "[method]"
            )
        directions = sums / rows.clamp(min=1.0)[:, None]
        sizes = directions.norm(dim=1)
    loss = LOSSES_BY_NAME[plan.model.loss]
    rate = rate_for_eigenvalue(
        loss, float(sizes.max()), linear=not plan.model.hidden, ridge=plan.model.ridge
    )
    return rounded_rate(rate), refused


def _check_curvature(own: Tensor, directions: Tensor, lengths: RowLengths, site: str) -> None:
    """Refuse sums of x (x . v) that are impossible for rows of this length.

    With M the sum of x x^T over a group's rows, |M v| <= tr M for |v| = 1, and the traces of all
    groups sum to the squared length of the rows; M has no negative eigenvalue.
    """
    most = lengths.rows**2
    curved = (own * directions).sum(dim=1)
    too_long = float(own.norm(dim=1).sum()) > most * (1.0 + ROUNDING)
    if too_long or bool((own.square().sum(dim=1) > most * (curved + ROUNDING * most)).any()):
        raise RefusedError(f"{site} sent a curvature that is impossible for its rows; refused")


@dataclass(frozen=True, eq=False)
class Agreed:
    """What is stored: encoding, rows by site and group, and the learning rate if it was open.

    ``lengths`` limit what sites can reply. ``validation`` are rows by site and group that are set
    aside to choose the round.
    """

    encoding: Encoding
    counts: Mapping[str, Sequence[int]]
    learning_rate: str | None
    lengths: Mapping[str, RowLengths] = field(default_factory=dict)
    validation: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def validation_rows(self, sites: Sequence[str]) -> Tensor:
        """Return validation rows by site and group; no lines if none are set aside."""
        nothing = [0] * len(self.encoding.groups)
        lines = [list(self.validation.get(site, nothing)) for site in sites]
        return torch.tensor(lines if self.validation else [], dtype=torch.int64)

    def rows(self, sites: Sequence[str]) -> Tensor:
        """Return rows by site and group, with none for a site that is not part of it."""
        nothing = [0] * len(self.encoding.groups)
        return torch.tensor([list(self.counts.get(site, nothing)) for site in sites])

    def census(self, sites: Sequence[str]) -> Census:
        """Return the census of these sites."""
        schema = self.encoding.schema
        classes, least = len(schema.target.classes), schema.minimum_to_play
        return Census(self.rows(sites), classes, minimum_group=least)


@dataclass(frozen=True, eq=False)
class Agreement:
    """The plan, its encoding, the census, and why some sites are not part of it.

    ``row_lengths`` are those of the sites, in the plan's order. ``validation_rows`` are by site and
    group, without lines if none are set aside. ``group_curvature`` limits the second derivatives of
    each group's loss sum over all sites, if a safe learning rate was found.
    """

    plan: NetworkPlan
    encoding: Encoding
    census: Census
    _: KW_ONLY
    refused: Mapping[str, str]
    row_lengths: tuple[RowLengths, ...]
    validation_rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    group_curvature: Tensor | None = None

    @property
    def task(self) -> Task:
        """The model at its start, and the loss."""
        return task_of(self.plan, self.encoding)


def agree(plan: NetworkPlan, transport: Transport, folder: Path) -> Agreement:
    """Let all sites prepare and encode their rows; an existing agreement is kept."""
    summaries, refused = summaries_of(plan, transport)
    agreed = read_agreement(folder / AGREEMENT_FILE)
    encoding = _new_encoding(plan, summaries, refused) if agreed is None else agreed.encoding
    reported, more = _counts(encoding, transport, tuple(summaries), validates=plan.validation > 0)
    refused |= more
    groups = len(encoding.groups)
    if agreed is None:
        set_aside = {site: own[groups:] for site, own in reported.items() if own[groups:]}
        reported = {site: own[:groups] for site, own in reported.items()}
        reported = _drop_oversized(reported, set_aside, plan, refused)
        counts = {site: encoding.count(summaries[site].group_counts) for site in reported}
        reported = _drop_mismatches(
            reported, counts, "counts other groups than its summary had", refused
        )
        counts = {site: counts[site] for site in reported}
        lengths = {site: row_lengths(summaries[site], encoding) for site in reported}
        rate = None
        if needs_learning_rate(plan.runs):
            rate, more = agree_on_rate(plan, encoding, counts, lengths, transport)
            refused |= more
            counts = {site: own for site, own in counts.items() if site not in more}
            reported = {site: own for site, own in reported.items() if site not in more}
        _check_groups_left(encoding, counts, refused)
        set_aside = {site: own for site, own in set_aside.items() if site in counts}
        agreed = Agreed(encoding, counts, rate, lengths, set_aside)
        write_agreement(folder / AGREEMENT_FILE, agreed)
    else:
        late = [site for site in reported if site not in agreed.counts]
        refused |= {site: f"{site} was absent when this run began; skipped" for site in late}
        reported = {site: own for site, own in reported.items() if site not in late}
        fault = "has another table than when this run began"
        before = {
            site: [*own, *agreed.validation.get(site, ())] for site, own in agreed.counts.items()
        }
        reported = _drop_mismatches(reported, before, fault, refused)
    if agreed.learning_rate is not None:
        plan = replace(plan, runs=with_rate(plan.runs, agreed.learning_rate))
        payload = {"rate": agreed.learning_rate.encode()}
        refused |= gather(transport(tuple(reported), "take_rate", payload)).failures
    linear = linear_structure_of(task_of(plan, agreed.encoding))
    in_order = tuple(agreed.lengths.get(site, UNKNOWN_LENGTHS) for site in plan.senders)
    rows = agreed.rows(plan.senders)
    # Of all rows of the sites that have any of the group.
    squares = torch.tensor([own.rows**2 for own in in_order], dtype=torch.float64)
    by_group = torch.where(rows > 0, squares[:, None], 0.0).sum(dim=0).sqrt()
    census = replace(agreed.census(plan.senders), linear=linear, row_lengths=by_group)
    set_aside_rows = agreed.validation_rows(plan.senders)
    group_curvature = None
    if agreed.learning_rate is not None and linear is not None:
        # A rate is at least half of what the largest eigenvalue allows, unless the first direction
        # of the power iteration is orthogonal to its eigenvector to nine digits.
        largest = 2.0 / float(agreed.learning_rate)
        group_curvature = largest * rows.sum(dim=0).double()
    return Agreement(
        plan,
        encoding,
        census,
        refused=refused,
        row_lengths=in_order,
        validation_rows=set_aside_rows,
        group_curvature=group_curvature,
    )


def _drop_oversized(
    reported: dict[str, list[int]],
    set_aside: Mapping[str, list[int]],
    plan: NetworkPlan,
    refused: dict[str, str],
) -> dict[str, list[int]]:
    """Return the sites that set no more rows aside than the plan's share allows."""
    for site, own in set_aside.items():
        most = max_rows_set_aside(plan, sum(reported[site]), plan.validation, 1)
        if min(own) < 0 or sum(own) > most:
            refused[site] = (
                f"{site} counts {sum(own):,} validation rows and {sum(reported[site]):,} "
                f"training rows, at most {most:,} are possible; refused"
            )
    return {site: own for site, own in reported.items() if site not in refused}


def _drop_mismatches(
    reported: Mapping[str, list[int]],
    expected: Mapping[str, Sequence[int]],
    fault: str,
    refused: dict[str, str],
) -> dict[str, list[int]]:
    """Return the sites that reported what was expected; note why the others are refused."""
    fitting = {site: own for site, own in reported.items() if own == expected.get(site)}
    refused |= {site: f"{site} {fault}; refused" for site in reported if site not in fitting}
    return fitting


def summaries_of(
    plan: NetworkPlan, transport: Transport
) -> tuple[dict[str, SiteSummary], dict[str, str]]:
    """Send the plan; return each site's summary, and the reasons of the others."""
    answers = gather(transport(plan.senders, "prepare", {"plan": plan_to_bytes(plan)}))
    summaries, refused = {}, dict(answers.failures)
    max_rows = plan.site_rules.max_rows * plan.max_sites_per_reply
    for site in (site for site in plan.senders if site in answers.messages):
        message, counted = answers.messages[site], plan.privacy is None
        try:
            summary = summary_from_bytes(message, plan.schema, site, counted=counted)
            _check_rows(summary, max_rows, site)
            summaries[site] = summary
        except RefusedError as error:
            refused[site] = str(error)
    return summaries, refused


def _new_encoding(
    plan: NetworkPlan, summaries: Mapping[str, SiteSummary], refused: Mapping[str, str]
) -> Encoding:
    if len(summaries) < plan.minimum_replies:
        raise InputError(
            f"{len(summaries)} of {len(plan.sites)} sites can take part, at least "
            f"{plan.minimum_sites} are needed ({'; '.join(refused.values())})"
        )
    total = reduce(add, summaries.values())
    if total.rows == 0:
        raise InputError("no site has a training row; give at least one site with data")
    check_same_codes(summaries, plan.schema)
    encoding = agree_on_encoding(plan.schema, total, splines=plan.model.is_spline)
    _check_small_groups(plan, encoding, summaries)
    return encoding


def _check_rows(summary: SiteSummary, most: int, site: str) -> None:
    if summary.rows > most:
        raise RefusedError(
            f"{site} reports {summary.rows:,} training rows, more than {most:,}; "
            "refused (if it has them, raise --max-rows)"
        )


def _check_small_groups(
    plan: NetworkPlan, encoding: Encoding, summaries: Mapping[str, SiteSummary]
) -> None:
    """Stop before the first round if a group that plays has so few rows that they would dominate.

    Groups that the configuration treats as small do not play.
    """
    least = plan.site_rules.abort_below
    counts = {site: encoding.count(own.group_counts) for site, own in summaries.items()}
    for number, key in enumerate(encoding.groups):
        rows = sum(own[number] for own in counts.values())
        if rows < least and key not in encoding.small_groups:
            having = [site for site, own in counts.items() if own[number]]
            raise InputError(
                f"group '{group_name(key, plan.schema)}' has {rows:,} training rows in all, at "
                f"{', '.join(having)}, fewer than {least}: raise minimum_size or set small in "
                "[groups], let its sites merge small groups, list the values of groups in the "
                "configuration, or lower --abort-below"
            )


def _check_groups_left(
    encoding: Encoding, counts: Mapping[str, Sequence[int]], refused: Mapping[str, str]
) -> None:
    """Stop if only refused sites have a group: nothing could be learned about it."""
    left = [sum(own) for own in zip(*counts.values(), strict=True)]
    for name, rows in zip(encoding.group_names, left or [0] * len(encoding.groups), strict=True):
        if rows == 0:
            raise InputError(
                f"no remaining site has group '{name}' ({'; '.join(refused.values())}); correct "
                "that site, or start a run without it"
            )


def _counts(
    encoding: Encoding, transport: Transport, sites: tuple[str, ...], *, validates: bool
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Send the encoding; return each site's counts by group, and the reasons of the others.

    Where rows are set aside for validation, their counts follow those of the training rows.
    """
    payload = {"encoding": encoding_as_json(encoding).encode()}
    answers = gather(transport(sites, "encode", payload))
    reported, refused = {}, dict(answers.failures)
    like = torch.zeros(len(encoding.groups) * (2 if validates else 1), dtype=torch.int64)
    for site, message in answers.messages.items():
        try:
            reported[site] = vector_from_bytes(message, like, site).tolist()
        except RefusedError as error:
            refused[site] = str(error)
    return reported, refused


def read_agreement(path: Path) -> Agreed | None:
    """Read what the sites agreed on; None if they never did."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        encoding = encoding_from_json(json.dumps(content["encoding"]), str(path))
        counts = TypeAdapter(dict[str, list[RowCount]]).validate_python(content["counts"])
        rate = TypeAdapter(str | None).validate_python(content["learning_rate"])
        lengths = TypeAdapter(dict[str, RowLengths]).validate_python(content["row_lengths"])
        rows = TypeAdapter(dict[str, list[RowCount]])
        validation = rows.validate_python(content["validation"])
        lines = [*counts.values(), *validation.values()]
        whole = all(len(own) == len(encoding.groups) for own in lines) and counts
        if whole and (rate is None or 0 < float(rate) < math.inf):
            return Agreed(encoding, counts, rate, lengths, validation)
    except (ValueError, KeyError, TypeError, InputError) as error:
        raise InputError(f"{path} is damaged; start a new run") from error
    raise InputError(f"{path} is damaged; start a new run")


def write_agreement(path: Path, agreed: Agreed) -> None:
    """Keep what the sites agreed on."""
    content = {
        "encoding": json.loads(encoding_as_json(agreed.encoding)),
        "counts": agreed.counts,
        "learning_rate": agreed.learning_rate,
        "row_lengths": {site: asdict(own) for site, own in agreed.lengths.items()},
        "validation": agreed.validation,
    }
    write_json(path, content)
