"""A site's rows once they are encoded as at all sites, and the replies computed from them.

What a site keeps to itself from round to round is on its own disk (``SiteState``).

Questions from which an additive model's smoothing and pairs are chosen come after the encoding
without smoothing and before the one with it. The sums are those of the plain mean fit over all
records (``training.additive_class``): no more than a round's sums tell.
"""

import hashlib
import re
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.bounds import sum_along
from fedminmax.core.examples import Examples, check_examples
from fedminmax.core.files import write_bytes
from fedminmax.core.messages import Order, Sums, all_finite
from fedminmax.core.models import mixture_with
from fedminmax.core.one_step import evaluation_losses
from fedminmax.core.task import Task, check_fit
from fedminmax.core.text import quoted
from fedminmax.core.validation import LossSums, sum_losses
from fedminmax.core.workspace import Workspace, choose_rows_per_chunk, model_with
from fedminmax.data.tables.encode import encode, merged_numbers, widened
from fedminmax.data.tables.encoding import EncodedQuantity, Encoding, Scale
from fedminmax.data.tables.given_predictions import checked_predictions
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.sources import ListedRows, write_held_out
from fedminmax.methods.look_ahead import FedAvgFast
from fedminmax.methods.method import AnyMethod, SiteData, lets_sites_keep
from fedminmax.metrics.code_sums import code_sums, no_code_sums
from fedminmax.metrics.row_scores import stacked
from fedminmax.metrics.sums import (
    ScoreSums,
    metric_names,
    score_predictions,
    score_rows,
    sum_by_group,
    sum_scores,
)
from fedminmax.network.secure.layouts import measured_shape, mechanism_of_plan
from fedminmax.network.site.policy import SiteRows
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import order_from_bytes, vector_from_bytes, vector_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, digest_of, task_of
from fedminmax.network.wire.sections import SumsOfModels
from fedminmax.network.wire.values import Pairs, pairs_from_bytes
from fedminmax.training.additive_class import MAX_QUESTIONS
from fedminmax.training.certify import MEAN_FIT, CellSums
from fedminmax.training.private import row_limits_of
from fedminmax.training.replies import NOTHING, site_reply

# Of n rows none is more than sqrt(n) deviations from the mean.
MAX_DEVIATIONS = 1e6
# The server's checkpoint and its predecessor are at most two rounds back.
ROUNDS_KEPT = 4
FILE_NAME = re.compile(r"round-(\d+)\.safetensors")


@dataclass(frozen=True, eq=False)
class EncodedSite:
    """Encoded training rows as a site, held-out rows, validation rows, buffers, theta^0.

    ``merged`` is the number of each held-out row's merged group; -1 if it is in none. ``audited``
    are sums of the scores of predictions that the table has.
    """

    plan: NetworkPlan
    encoding: Encoding
    _: KW_ONLY
    task: Task
    data: SiteData
    held_out: Examples
    merged: Tensor
    validation: Examples
    workspace: Workspace
    start: Tensor
    audited: ScoreSums | None = None

    def sums_along(self, directions: Tensor) -> Tensor:
        """Return each group's sum of x (x . v), with its own direction v [groups, x + 1]."""
        own = self.data.examples
        by_group = [own.x[own.group == number].double() for number in range(self.data.groups)]
        return torch.stack([sum_along(*pair) for pair in zip(by_group, directions, strict=True)])

    @property
    def train_counts(self) -> Tensor:
        """Training rows by group."""
        return torch.bincount(self.data.examples.group, minlength=self.data.groups)

    @cached_property
    def rows_digest(self) -> str:
        """A digest of the encoded training rows."""
        own, whole = self.data.examples, hashlib.sha256()
        for tensor in (own.x, own.y, own.group):
            whole.update(tensor.contiguous().numpy().data)
        return whole.hexdigest()

    @property
    def validation_counts(self) -> Tensor:
        """Validation rows by group."""
        return torch.bincount(self.validation.group, minlength=self.data.groups)

    @property
    def counts(self) -> Tensor:
        """Training rows by group, and validation rows if the plan sets any aside."""
        if not self.plan.validation:
            return self.train_counts
        return torch.cat([self.train_counts, self.validation_counts])

    def validation_losses(self, parameters: Tensor) -> LossSums:
        """Return the losses of a model on validation rows."""
        losses = evaluation_losses(
            [self.workspace], parameters, self.validation, self.data.rows_per_chunk
        )
        return sum_losses(losses, self.validation.group, self.data.groups)

    def measure(self, runs: list[Tensor]) -> SumsOfModels:
        """Return sums of all runs' models, and how they fit the training rows of each group."""
        shape = measured_shape(self.plan, self.encoding, len(runs))
        if self.audited is not None:
            return SumsOfModels(self.audited, no_code_sums(shape.codes))
        models = [model_with(self.task, members[0]) for members in runs]
        by_code = code_sums(models, self.data.examples, shape.codes)
        return SumsOfModels(self._scores(runs), by_code)

    def _scores(self, runs: list[Tensor]) -> ScoreSums:
        """Return sums over held-out rows of all runs' scores, side by side.

        Rows of merged groups are also summed for each of these, after all groups.
        """
        classifies = self.encoding.outputs > 1
        scores = [
            score_rows(
                mixture_with(self.task, members, classifies=classifies),
                self.held_out,
                self.encoding,
            )
            for members in runs
        ]
        table = torch.from_numpy(np.concatenate([stacked(own) for own in scores], axis=1))
        groups, apart = self.data.groups, len(self.encoding.merged_groups)
        group = torch.where(self.merged >= 0, groups + self.merged, self.held_out.group)
        return sum_scores(table, group, groups + apart, metric_names(self.encoding))


def encode_site(plan: NetworkPlan, rows: SiteRows, encoding: Encoding, site: str) -> EncodedSite:
    """Encode a site's rows; the held-out ones are only those that it discloses."""
    task, precision = task_of(plan, encoding), plan.precision.dtype
    if plan.privacy is not None:
        own, others = (_within_reach(part, encoding) for part in (rows.train, rows.held_out))
        rows = replace(rows, train=own, held_out=others)
    train = _checked(encode(rows.train, encoding, site), precision, site)
    held_out = _checked(encode(rows.held_out, encoding, site), precision, site)
    set_aside = rows.held_out.take(np.arange(0)) if rows.validation is None else rows.validation
    validation = _checked(encode(set_aside, encoding, site), precision, site)
    if len(train):
        check_fit(task, train, site)
    data = SiteData(
        number=plan.sites.index(site),
        examples=train,
        sites=len(plan.sites),
        groups=len(encoding.groups),
        rows_per_chunk=choose_rows_per_chunk(task, train) if len(train) else 1,
        kept=NOTHING,
    )
    start = task.initial_parameters
    merged = merged_numbers(rows.held_out, encoding)
    limits = None if plan.privacy is None else row_limits_of(mechanism_of_plan(plan))
    workspace = Workspace(task, limits)
    return EncodedSite(
        plan,
        encoding,
        task=task,
        data=data,
        held_out=held_out,
        merged=merged,
        validation=validation,
        workspace=workspace,
        start=start,
        audited=_audit(plan, rows.train, train.group, encoding) if plan.audit else None,
    )


def _audit(plan: NetworkPlan, rows: ParsedRows, group: Tensor, encoding: Encoding) -> ScoreSums:
    """Return the sums of scores of the predictions that are columns of all rows."""
    target, quantities = plan.schema.target, rows.features.quantities
    # Targets as they are: training has them in the model's precision, quantities on another scale.
    own = replace(encoding, target_scale=Scale(0.0, 1.0) if target.is_quantity else None)
    scores = []
    for columns in plan.audit:
        given = [quantities[column] for column in columns]
        predicted = given[0] if len(given) == 1 else np.stack(given, axis=1)
        checked = checked_predictions(predicted, target.classes, target, quoted(columns))
        scores.append(stacked(score_predictions(checked, torch.tensor(rows.target), own)))
    table, merged = torch.from_numpy(np.concatenate(scores, axis=1)), merged_numbers(rows, encoding)
    return sum_by_group(table, group, merged, encoding)


def started_at(encoded_site: EncodedSite, start: bytes, sender: str) -> EncodedSite:
    """Return the site with another model that training starts from, if one came."""
    if not start:
        return encoded_site
    return replace(encoded_site, start=vector_from_bytes(start, encoded_site.start, sender))


def _within_reach(rows: ParsedRows, encoding: Encoding) -> ParsedRows:
    """Return the rows with numbers cut off MAX_DEVIATIONS from the mean.

    No value is that far from the mean of its own table. A server that lies about mean and deviation
    would otherwise find out from a refusal that one is.
    """
    quantities = dict(rows.features.quantities)
    for feature in encoding.features:
        if isinstance(feature, EncodedQuantity) and feature.varies:
            reach = Scale(feature.mean, feature.deviation)
            quantities[feature.column] = _cut_off(quantities[feature.column], reach)
    scale = encoding.target_scale
    target = rows.target if scale is None else _cut_off(rows.target, scale)
    return replace(rows, features=replace(rows.features, quantities=quantities), target=target)


def _cut_off(values: NDArray[Any], scale: Scale) -> NDArray[Any]:
    reach = MAX_DEVIATIONS * abs(scale.deviation)
    cut_off: NDArray[Any] = np.clip(values, scale.mean - reach, scale.mean + reach)
    return cut_off


def _checked(rows: Examples, precision: torch.dtype, site: str) -> Examples:
    y = rows.y.to(precision) if rows.y.is_floating_point() else rows.y
    # Codes of an additive model are no numbers to round.
    x = rows.x.to(precision) if rows.x.is_floating_point() else rows.x
    return check_examples(x, y, rows.group, site)


class SiteState:
    """What a site keeps to itself from round to round of a run: one file per round.

    A server that goes on from a checkpoint asks for a round again, and the site then starts from
    what it kept before that round, as if the round had never been.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, number: int, start: Tensor) -> Tensor:
        """Return the vector of the last round before this one; ``start`` if there is none."""
        earlier = [kept for kept in self._rounds() if kept < number]
        if not earlier:
            return start
        path = self._path(max(earlier))
        return vector_from_bytes(path.read_bytes(), start, str(path))

    def keep(self, number: int, vector: Tensor) -> None:
        """Store this round's vector; drop later rounds, which are being repeated, and old ones."""
        for later in [kept for kept in self._rounds() if kept >= number]:
            self._path(later).unlink()
        write_bytes(self._path(number), vector_to_bytes(vector))
        for old in sorted(self._rounds())[:-ROUNDS_KEPT]:
            self._path(old).unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number}.safetensors"

    def _rounds(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        names = [FILE_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        return [int(match[1]) for match in names if match]


def reply_to(
    method: AnyMethod[Any], order: Order, encoded_site: EncodedSite, state: Path | None = None
) -> Sums:
    """Do a round's work; what the site keeps from round to round is stored under ``state``."""
    site, workspace = encoded_site.data, encoded_site.workspace
    if state is None or not lets_sites_keep(method):
        return site_reply(method, order, site, workspace)[0]
    kept = SiteState(state)
    start = method.start_keeping(encoded_site.start, site.groups)
    before = kept.before(order.key.round, start)
    reply, now = site_reply(method, order, replace(site, kept=before), workspace)
    # An overflow would end the next round here: a server that sends a model to one site alone
    # would learn from it.
    kept.keep(order.key.round, now if all_finite(now) else before)
    return reply


def list_rows(folder: Path, rows: SiteRows, plan: NetworkPlan, owner: str) -> None:
    """Write a local list of the rows that the figures are based on."""
    held_out = ListedRows(plan.held_out, {owner: rows.held_out.numbers})
    own = {} if rows.validation is None else {owner: rows.validation.numbers}
    set_aside = ListedRows(plan.validation, own)
    if len(held_out) or len(set_aside):
        path = folder / f"held_out-{digest_of(plan)[:16]}.json"
        write_held_out(path, plan.seed, held_out, set_aside)


@dataclass(frozen=True, eq=False)
class SmoothingQuestion:
    """What is asked, of rows that have the codes of these pairs, too."""

    question: Question
    order: Order
    pairs: Pairs
    site: EncodedSite

    @property
    def method(self) -> FedAvgFast | CellSums:
        """Whose sums are asked for."""
        return CellSums() if self.order.phase else MEAN_FIT


def read_smoothing_question(
    order: object, pairs: object, encoded_site: EncodedSite, sender: str
) -> SmoothingQuestion:
    """Read a question; refuse one that the plan does not have, or not at this time."""
    encoding = encoded_site.encoding
    if not encoding.is_additive or encoding.stage:
        raise RefusedError(f"{sender} asks about smoothing, which its plan does not have now")
    chosen = pairs_from_bytes(pairs, encoding, sender)
    site = _with_pairs(encoded_site, chosen)
    came = order_from_bytes(order, site.start, sender)
    if not 1 <= came.key.round <= MAX_QUESTIONS or came.phase > 1:
        raise RefusedError(f"{sender} asks for round {came.key.round} of smoothing")
    question = Question(Endpoint.SMOOTH, round=came.key.round, phase=came.phase)
    return SmoothingQuestion(question, came, chosen, site)


def _with_pairs(encoded_site: EncodedSite, pairs: Pairs) -> EncodedSite:
    encoding = replace(encoded_site.encoding, pairs=pairs)
    task, rows = task_of(encoded_site.plan, encoding), encoded_site.data.examples
    return replace(
        encoded_site,
        encoding=encoding,
        task=task,
        data=replace(encoded_site.data, examples=replace(rows, x=widened(rows.x, encoding))),
        workspace=Workspace(task),
        start=task.initial_parameters,
    )
