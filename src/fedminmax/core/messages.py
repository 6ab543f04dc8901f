"""What travels between server and sites: counts once, then orders out and sums back.

Everything a site returns is a sum over its own rows, so replies can be added in any order, a
site without a group returns 0 instead of 0/0, and any party can do the adding.

| symbol of Papadaki et al. 2021 | name                       |
|--------------------------------|----------------------------|
| n_{a,k}                        | Census.counts[k, a]        |
| rho_a = n_a / n                | Census.group_shares        |
| theta^{t-1}                    | Order.parameters           |
| w^{t-1} (or lambda^{t-1})      | Order.weights              |
| sum_k n_k (theta - theta_k)    | Sums.step                  |
| sum_k n_k                      | Sums.scale                 |
| sum_k n_{a,k} r_{a,k}          | Sums.group_loss            |
"""

import math
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor

from fedminmax.core.linear_structure import LinearStart, LinearStructure
from fedminmax.core.noise import NoiseLevels
from fedminmax.core.small_groups import included_groups
from fedminmax.core.validation import NO_LOSSES, LossSums


@dataclass(frozen=True, eq=False)
class Census:
    """How many rows of each group each site has, collected once before the first round.

    ``classes`` is the number of classes among the labels, 0 where targets are quantities.
    ``linear`` is the layout of a linear model, for methods that use its second derivatives, and
    ``linear_start`` that of a linear model from which a network can start.
    ``row_lengths`` are upper bounds on the roots of the sums of |x|^2 over each group's rows, with
    a 1 appended to each row: they bound rounding errors. Without them nothing can be proved.
    ``value_marks`` [A, 5] tell other values of rows apart, up to rounding; None if the server
    does not see rows.
    Groups with fewer rows than ``minimum_group`` are too small for an adversary to choose.
    With ``noise`` the counts, one line over all sites, and all later sums have noise (see
    ``core.privacy``); ``moment`` is then the sum of x x' of a linear model's rows.
    """

    counts: Tensor
    classes: int = 0
    _: KW_ONLY
    linear: LinearStructure | None = None
    linear_start: LinearStart | None = None
    minimum_group: int = 0
    row_lengths: Tensor | None = None
    value_marks: Tensor | None = None
    noise: NoiseLevels | None = None
    moment: Tensor | None = None

    @property
    def sites(self) -> int:
        """Number of sites, K."""
        return int(self.counts.shape[0])

    @property
    def groups(self) -> int:
        """Number of groups, A."""
        return int(self.counts.shape[1])

    @property
    def site_counts(self) -> Tensor:
        """Rows of each site, n_k."""
        return self.counts.sum(dim=1)

    @cached_property
    def occupied(self) -> tuple[int, ...]:
        """The numbers of the sites that have rows."""
        return tuple(self.site_counts.nonzero().squeeze(1).tolist())

    @property
    def site_shares(self) -> Tensor:
        """Share of each site in all rows, n_k / n, in float64."""
        return self.site_counts.to(torch.float64) / self.counts.sum()

    @property
    def group_shares(self) -> Tensor:
        """Share of each group in all rows, rho_a = n_a / n, in float64."""
        return self.counts.sum(dim=0).to(torch.float64) / self.counts.sum()

    @cached_property
    def included(self) -> Tensor:
        """Which groups an adversary may choose [A]; the others keep their share as weight."""
        rows = self.counts.sum(dim=0).tolist()
        return torch.tensor(included_groups(rows, self.minimum_group))


@dataclass(frozen=True)
class RoundKey:
    """Seed and round: with the site's number, all that randomness may depend on."""

    seed: int
    round: int


@dataclass(frozen=True, eq=False)
class Order:
    """Server to site: the model to start from and the weights that its method needs.

    ``phase`` counts the requests of one round, for methods that send more than one.
    """

    key: RoundKey
    parameters: Tensor
    weights: Tensor
    phase: int = 0


class Reveals(Enum):
    """The most detailed information about one site that the server sees, least first."""

    SUMS = "only sums over all sites"
    OWN_LOSS = "each site's own loss"
    OWN_VECTOR = "each site's own update"

    @property
    def level(self) -> int:
        """How much it reveals: 0 for sums only."""
        return list(Reveals).index(self)


@dataclass(frozen=True)
class SumRounding:
    """How far each number of a sum may be off because it travelled in whole numbers."""

    loss: float = 0.0
    step: float = 0.0
    statistics: float = 0.0

    def __add__(self, other: "SumRounding") -> "SumRounding":
        return SumRounding(
            self.loss + other.loss, self.step + other.step, self.statistics + other.statistics
        )


NOT_ROUNDED = SumRounding()


@dataclass(frozen=True, eq=False)
class Sums:
    """Site to server. Replies form a commutative monoid: they have a zero and an addition.

    ``site_loss`` and ``site_count`` have one entry per site, all but the sender's zero;
    they are empty unless the method needs each site's own loss (``Reveals.OWN_LOSS``).
    ``step`` is in the model's precision in a single reply (and in the fused path, which computes
    only one), and in float64 once replies are added.
    ``curvature`` is the part of ``scale`` that only shortens the step (0 for most methods).
    ``statistics`` are further sums that only this method needs, in its own order (empty for most
    methods).
    ``validation`` are the losses of the broadcast model on rows that are set aside; empty if there
    are none. ``rounding`` is that of masked totals; sums that were not masked have none.
    """

    step: Tensor
    scale: float
    _: KW_ONLY
    curvature: float
    group_loss: Tensor
    group_count: Tensor
    site_loss: Tensor
    site_count: Tensor
    statistics: Tensor
    gradient_evaluations: int
    validation: LossSums = NO_LOSSES
    rounding: SumRounding = NOT_ROUNDED

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.step + other.step,
            self.scale + other.scale,
            curvature=self.curvature + other.curvature,
            group_loss=self.group_loss + other.group_loss,
            group_count=self.group_count + other.group_count,
            site_loss=self.site_loss + other.site_loss,
            site_count=self.site_count + other.site_count,
            statistics=self.statistics + other.statistics,
            gradient_evaluations=self.gradient_evaluations + other.gradient_evaluations,
            validation=self.validation + other.validation,
            rounding=self.rounding + other.rounding,
        )

    @property
    def group_risks(self) -> Tensor:
        """Mean loss of each group over all replies; NaN for a group that no site had."""
        return self.group_loss / self.group_count

    @property
    def site_risks(self) -> Tensor:
        """Mean loss of each site that revealed it; NaN for the others."""
        return self.site_loss / self.site_count


NO_STATISTICS = torch.zeros(0, dtype=torch.float64)


def all_finite(values: Tensor) -> bool:
    """Return whether no number is NaN or infinite.

    The sum is checked first: it is nearly always finite, and the fastest to compute.
    """
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def zero_sums(parameters: int, groups: int, sites: int) -> Sums:
    """Return the zero of the addition (``sites`` is 0 where no site's loss is revealed)."""
    return Sums(
        step=torch.zeros(parameters, dtype=torch.float64),
        scale=0.0,
        curvature=0.0,
        group_loss=torch.zeros(groups, dtype=torch.float64),
        group_count=torch.zeros(groups, dtype=torch.int64),
        site_loss=torch.zeros(sites, dtype=torch.float64),
        site_count=torch.zeros(sites, dtype=torch.int64),
        statistics=NO_STATISTICS,
        gradient_evaluations=0,
    )


def descend(parameters: Tensor, total: Sums) -> Tensor:
    """The server's update: theta <- theta - step / scale (unchanged if the scale is 0)."""
    if total.scale == 0.0:
        return parameters
    if total.step.dtype == parameters.dtype:
        return torch.sub(parameters, total.step.to(parameters.device), alpha=1.0 / total.scale)
    return parameters - (total.step / total.scale).to(parameters)
