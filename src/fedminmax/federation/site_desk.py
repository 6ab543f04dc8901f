"""A site's rows, encoded as all sites do, and what it computes with them besides the rounds."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.examples import Examples, check_examples
from fedminmax.core.mixture import mixture_with
from fedminmax.core.one_step import losses_without_training
from fedminmax.core.safe_rate import sum_along
from fedminmax.core.score_sums import ScoreSums, sum_scores
from fedminmax.core.task import Task, check_fit
from fedminmax.core.validation import LossSums, sum_losses
from fedminmax.core.work_size import choose_rows_per_chunk
from fedminmax.core.workspace import Workspace
from fedminmax.data.row_scores import stacked
from fedminmax.data.tables.encode import encode, merged_numbers
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.score_rows import score_rows
from fedminmax.federation.group_policy import SiteRows
from fedminmax.federation.network_plan import NetworkPlan, task_of
from fedminmax.federation.per_holder import NOTHING
from fedminmax.methods.method import Holder


@dataclass(frozen=True, eq=False)
class Desk:
    """Encoded training rows as a holder, held-out rows, validation rows, buffers, theta^0.

    ``merged`` is which of the merged groups each held-out row is of; -1 where it is of none.
    """

    plan: NetworkPlan
    encoding: Encoding
    task: Task
    holder: Holder
    held_out: Examples
    merged: Tensor
    validation: Examples
    workspace: Workspace
    start: Tensor

    def sums_along(self, directions: Tensor) -> Tensor:
        """Return each group's sum of x (x . v), with a direction v of its own [groups, x + 1]."""
        own = self.holder.examples
        by_group = [own.x[own.group == number].double() for number in range(self.holder.groups)]
        return torch.stack([sum_along(*pair) for pair in zip(by_group, directions, strict=True)])

    @property
    def validation_counts(self) -> Tensor:
        """Validation rows by group."""
        return torch.bincount(self.validation.group, minlength=self.holder.groups)

    def validation_losses(self, parameters: Tensor) -> LossSums:
        """Return the losses of a model on validation rows."""
        losses = losses_without_training(
            [self.workspace], parameters, self.validation, self.holder.rows_per_chunk
        )
        return sum_losses(losses, self.validation.group, self.holder.groups)

    def measure(self, runs: list[Tensor]) -> ScoreSums:
        """Return sums over held-out rows of all runs' scores, side by side.

        Rows of merged groups are added up for each of these, after all groups.
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
        groups, apart = self.holder.groups, len(self.encoding.merged_groups)
        group = torch.where(self.merged >= 0, groups + self.merged, self.held_out.group)
        return sum_scores(table, group, groups + apart)


def furnish(plan: NetworkPlan, rows: SiteRows, encoding: Encoding, site: str) -> Desk:
    """Encode a site's rows, of which the held-out ones are those that it tells of."""
    task, precision = task_of(plan, encoding), plan.precision.dtype
    train = _checked(encode(rows.train, encoding, site), precision, site)
    held_out = _checked(encode(rows.held_out, encoding, site), precision, site)
    set_aside = rows.held_out.take(np.arange(0)) if rows.validation is None else rows.validation
    validation = _checked(encode(set_aside, encoding, site), precision, site)
    if len(train):
        check_fit(task, train, site)
    holder = Holder(
        number=plan.sites.index(site),
        examples=train,
        holders=len(plan.sites),
        groups=len(encoding.groups),
        rows_per_chunk=choose_rows_per_chunk(task, train) if len(train) else 1,
        kept=NOTHING,
    )
    start = task.initial_parameters
    merged = merged_numbers(rows.held_out, encoding)
    workspace = Workspace(task)
    return Desk(plan, encoding, task, holder, held_out, merged, validation, workspace, start)


def _checked(rows: Examples, precision: torch.dtype, site: str) -> Examples:
    y = rows.y.to(precision) if rows.y.is_floating_point() else rows.y
    return check_examples(rows.x.to(precision), y, rows.group, site)
