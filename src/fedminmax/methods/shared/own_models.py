"""What a group's own best model reaches on records that it has not seen, from sums by group.

A group's training risk at a model of its own says nothing about that: with as many parameters as
records it is 0, whatever the labels are. So each group's models are fitted to its records outside
of a fold and measured on those inside, for every fold; a record's fold is drawn at its site. One
model serves them all in one pass, since a record belongs to one group.

Of few records a model for them alone is worse than the plain one, theta_0, that all records share.
So the candidates of group a are, for some t, the minimum of

    t h_a(theta) + (1 - t) q(theta) + m/2 |theta|^2,

where q is the second-order model of the mean risk at theta_0, and theta_0 itself (t = 0). It is
reached by steps in the metric P = H + m I of the plain model, of a length that the last step's
change of slope tells (Barzilai, Borwein: Two-point step size gradient methods, 1988); a step that
raises the objective is taken back.

With D the mean by which a candidate's risk on held-out records is below the plain model's, and s
its standard error from the folds, the group's gain is the largest D max(0, 1 - s^2 / D^2): James
and Stein's shrinkage (Estimation with quadratic loss, 1961), so that chance is no gain. Without
any gain it is 0.13 s on average where errors are normal; D itself, cut off at 0, would be 0.40 s.

| symbol | name                     |
|--------|--------------------------|
| t      | MIXES                    |
| h_a    | OwnSums.losses / records |
| H      | Plain.curvature          |
| m      | Plain.ridge              |
| D, s   | differences, errors      |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.examples import Examples
from fedminmax.core.messages import Order, Sums, zero_sums
from fedminmax.core.one_step import GroupSums, linear_group_sums
from fedminmax.core.randomness import Purpose, torch_stream
from fedminmax.core.solvers.cone import nearest_in_cone
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender

FOLDS = 5
MIXES = (0.2, 0.8)
MODELS = len(MIXES) * FOLDS
# Steps after the plain model; the objectives are close to quadratic in its metric.
MAX_STEPS = 6
# Steps that promise less than this share of the objective are not worth a round.
CLOSE = 1e-4
SHRINKAGE, LEAST_RATE, MOST_RATE = 0.3, 0.1, 20.0


def asks_for_own_models(order: Order, groups: int) -> bool:
    """Return whether an order brings the groups' own models in the place of weights."""
    return len(order.weights) == groups * MODELS * len(order.parameters)


def own_sums(order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
    """Return losses and gradients outside of folds, and losses and records inside, by own model.

    The losses by group are those of the plain model.
    """
    rows, groups, size = site.examples, site.groups, len(order.parameters)
    models = order.weights.reshape(groups, len(MIXES), FOLDS, size)
    losses, held_out = (torch.zeros(models.shape[:3]).double() for _ in range(2))
    gradients, counts = torch.zeros_like(models), torch.zeros(groups, FOLDS).double()
    fold = _folds(order.key.seed, site)
    for group in torch.unique(rows.group).tolist():
        own = (rows.group == group).nonzero()[:, 0]
        for number in range(FOLDS):
            is_inside = fold[own] == number
            inside, outside = (_one_group(rows, own[part]) for part in (is_inside, ~is_inside))
            counts[group, number] = len(inside)
            for mix, model in enumerate(models[group, :, number]):
                place = group, mix, number
                sums = _sums(workspaces[0], model, outside, 1)
                losses[place], gradients[place] = sums.losses[0], sums.gradients[0]
                held_out[place] = _sums(workspaces[0], model, inside, 1).losses[0]
    statistics = [losses.flatten(), held_out.flatten(), counts.flatten()]
    return replace(
        zero_sums(0, groups, 0),
        step=gradients.flatten(),
        scale=float(len(rows)),
        group_loss=_sums(workspaces[0], order.parameters, rows, groups).losses,
        group_count=torch.bincount(rows.group, minlength=groups).cpu(),
        statistics=torch.cat(statistics),
        gradient_evaluations=len(rows) * len(MIXES) * (FOLDS - 1),
    )


def _folds(seed: int, site: SiteData) -> Tensor:
    """Draw a fold for each record; records of several sites are in the order of the sites."""
    counts = {site.number: len(site.examples)}
    if len(site.origin):
        numbers, each = torch.unique_consecutive(site.origin, return_counts=True)
        counts = dict(zip(numbers.tolist(), each.tolist(), strict=True))
    drawn = [
        torch.randint(
            FOLDS, (count,), generator=torch_stream(seed, Purpose.OWN_MODELS, site=number)
        )
        for number, count in counts.items()
    ]
    return torch.cat(drawn)


def _one_group(rows: Examples, places: Tensor) -> Examples:
    own = rows.rows(places)
    return replace(own, group=torch.zeros_like(own.group))


def _sums(workspace: Workspace, model: Tensor, rows: Examples, groups: int) -> GroupSums:
    """Return a linear model's sums by group, without curvature."""
    linear, design = workspace.linear, workspace.design
    if linear is None:
        raise TypeError("a network has no such sums")
    if design is None:
        return linear_group_sums(linear, model, rows, groups, curvature=False)
    return coded_group_sums(linear, design, model, rows, groups)


def expected_own_sums(order: Order, sender: Sender) -> ExpectedReply:
    """Expect what own models of this length can have; a record is outside of all folds but one.

    Each gradient is of some of a group's records, so all of them together are at most as long as
    if every model had all records: see ``LookAhead.expected``.
    """
    groups, size = len(sender.counts), len(order.parameters)
    lengths = order.weights.reshape(-1, size).norm(dim=1)
    longest = max(float(lengths.max()), sender.limits.output)
    limits = replace(sender.limits, output=longest)
    losses = limits.max_loss_sums(sender.counts, sender.lengths)
    squares = MODELS * limits.squared_slopes(sender.counts, losses).sum()
    by_model = losses.repeat_interleave(MODELS)
    upper = [by_model, by_model, sender.counts.double().repeat_interleave(FOLDS)]
    statistics = torch.cat(upper)
    return ExpectedReply(
        numbers=groups * MODELS * size,
        scale=float(sender.rows),
        rows=sender.rows,
        evaluations=sender.rows * len(MIXES) * (FOLDS - 1),
        reach=math.sqrt(float(squares)),
        lower=torch.zeros_like(statistics),
        upper=statistics,
        adds_up=True,
    )


@dataclass(frozen=True, eq=False)
class Plain:
    """The plain model [f], the mean risk's second derivatives there [f, f], and the ridge.

    Models keep to ``cone`` theta >= 0, if it has rows.
    """

    point: Tensor
    curvature: Tensor
    ridge: float
    cone: Tensor


@dataclass(frozen=True, eq=False)
class OwnSums:
    """By own model: losses [c] and slopes [c, f] outside of folds, and losses inside [c].

    ``counts`` [A, K] are the records of each group's folds.
    """

    losses: Tensor
    slopes: Tensor
    held_out: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class OwnModels:
    """All groups' own models, by group, mix and fold: those tried next, and the best so far [c, f].

    Of the best ones: the objective and its slope, losses inside of folds, and the next step's rate.
    ``plain`` [c] are the plain model's losses there.
    """

    tried: Tensor
    best: Tensor
    values: Tensor
    slopes: Tensor
    held_out: Tensor
    rates: Tensor
    plain: Tensor
    counts: Tensor
    steps: int = 0
    is_done: bool = False


def start_own_models(plain: Plain, groups: int) -> OwnModels:
    """Start every own model at the plain one."""
    cells = groups * MODELS
    tried, ones = plain.point.repeat(cells, 1), plain.point.new_ones(cells)
    return OwnModels(
        tried,
        best=tried,
        values=math.inf * ones,
        slopes=torch.zeros_like(tried),
        held_out=0.0 * ones,
        rates=ones,
        plain=0.0 * ones,
        counts=plain.point.new_zeros(groups, FOLDS),
    )


def after_own_sums(own: OwnModels, sums: OwnSums, plain: Plain) -> OwnModels:
    """Keep each model that lowered its objective, and choose the next ones."""
    groups, is_first = len(sums.counts), own.steps == 0
    shares = torch.tensor(MIXES).double().repeat_interleave(FOLDS).repeat(groups)
    outside = sums.counts.sum(dim=1, keepdim=True) - sums.counts
    records = outside[:, None].expand(-1, len(MIXES), -1).flatten().clamp(min=1.0)
    away = own.tried - plain.point
    bent = away @ plain.curvature
    # The mean risk's own slope at its minimum, where its penalty's is the opposite.
    pull = -plain.ridge * plain.point
    part = shares[:, None]
    slopes = part * sums.slopes / records[:, None] + (1.0 - part) * (bent + pull)
    slopes = slopes + plain.ridge * own.tried
    values = shares * sums.losses / records + (1.0 - shares) * _dot(0.5 * bent + pull, away)
    values = values + 0.5 * plain.ridge * _dot(own.tried, own.tried)
    is_better = values <= own.values
    step, turn = own.tried - own.best, slopes - own.slopes
    metric = plain.curvature + plain.ridge * torch.eye(len(plain.point)).double()
    fitting = (_dot(step @ metric, step) / _dot(step, turn)).nan_to_num(nan=1.0, posinf=MOST_RATE)
    fitting = torch.where(fitting > 0, fitting.clamp(LEAST_RATE, MOST_RATE), 1.0)
    rates = torch.where(is_better, fitting, SHRINKAGE * own.rates)
    kept = is_better[:, None]
    own = replace(
        own,
        best=torch.where(kept, own.tried, own.best),
        values=torch.where(is_better, values, own.values),
        slopes=torch.where(kept, slopes, own.slopes),
        held_out=torch.where(is_better, sums.held_out, own.held_out),
        rates=own.rates if is_first else rates,
        plain=sums.held_out if is_first else own.plain,
        counts=sums.counts,
        steps=own.steps + 1,
    )
    factor = torch.linalg.cholesky(metric)
    direction = torch.cholesky_solve(own.slopes.T, factor).T
    promised = 0.5 * own.rates * _dot(own.slopes, direction)
    tried = own.best - own.rates[:, None] * direction
    if len(plain.cone):
        tried = torch.stack([nearest_in_cone(plain.cone, model) for model in tried])
    is_done = own.steps > MAX_STEPS or bool((promised <= CLOSE * own.values.abs()).all())
    return replace(own, tried=tried, is_done=is_done)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(dim=1)


def gains_of(own: OwnModels) -> Tensor:
    """Return by how much each group's own best model is better than the plain one [A]."""
    counts = own.counts[:, None]
    better = (own.plain - own.held_out).reshape(len(own.counts), len(MIXES), FOLDS)
    records = counts.sum(dim=2).clamp(min=1.0)
    differences = better.sum(dim=2) / records
    # Of the weighted mean over folds, from how far these are apart.
    apart = better - counts * differences[:, :, None]
    errors = apart.square().sum(dim=2) * FOLDS / (FOLDS - 1) / records.square()
    shrunk = differences - errors / differences.clamp(min=1e-300)
    return torch.where(differences > 0, shrunk, 0.0).clamp(min=0.0).amax(dim=1)
