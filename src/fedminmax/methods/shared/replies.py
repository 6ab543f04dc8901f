"""Common parts of the replies and orders of several methods, and of local training.

Every method with local training replies with risks before training and counts
(``sums_before_training``). With local epochs (``LocalTraining``) a site trains by ClientUpdate of
McMahan et al. 2017 (see ``core.local_epochs``) from the model that it received, and returns
n_k (theta - theta_k) on the scale n_k, or with another weight than n_k. After a round, a server
that looks ahead knows each player's sums at the model it sent (``RiskSums``); the players are the
groups, or the sites for AFL's objective.

Methods over groups share the initial weights, and how these weight the rows. A group that is too
small for the adversary to choose keeps its share rho_b as weight. With s the sum of these shares,
the adversary moves within

    {mu: mu_b = rho_b for small b, mu_a >= epsilon and sum mu_a = 1 - s over the others},

so two rows with odd labels have the weight of two rows. A method's ascent skips the small groups,
as it does groups that no site had in a round: they keep their weight, and the others share the
rest.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.messages import (
    NOT_ROUNDED,
    Census,
    Order,
    Reveals,
    SumRounding,
    Sums,
    zero_sums,
)
from fedminmax.core.one_step import losses_of
from fedminmax.core.randomness import Purpose, torch_stream
from fedminmax.core.solvers.simplex import FixedShares, project_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import RowWeights, SiteData
from fedminmax.methods.shared.checks import check_floor, check_plan, check_positive
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs

NO_WEIGHTS = torch.zeros(0, dtype=torch.float64)
"""The weights of a method that has none."""


def sums_before_training(order: Order, site: SiteData, workspace: Workspace) -> Sums:
    """Load the broadcast model and return its loss sums on this site's rows.

    The step is empty: the caller fills it in.
    """
    workspace.load(order.parameters)
    losses = losses_of(workspace, site.examples, site.rows_per_chunk)
    return replace(
        zero_sums(0, site.groups, 0),
        group_loss=sum_by_group(losses, site),
        group_count=torch.bincount(site.examples.group, minlength=site.groups).cpu(),
    )


def sum_by_group(values: Tensor, site: SiteData) -> Tensor:
    """Sum one number per row by the row's group, in float64."""
    return torch.bincount(
        site.examples.group, weights=values.to(torch.float64), minlength=site.groups
    ).cpu()


def displacement(order: Order, trained: Tensor) -> Tensor:
    """Return the displacement by local training, theta - theta_k, in the model's precision."""
    return order.parameters - trained


def local_stream(order: Order, site: SiteData) -> torch.Generator:
    """Return the site's random stream in this round; a second request has its own."""
    purpose = Purpose.LOCAL_WORK if order.phase == 0 else Purpose.SECOND_REQUEST
    return torch_stream(order.key.seed, purpose, order.key.round, site.number)


def shares_within_floor(
    method: str, census: Census, min_weight: float, keep_share: float = 0.0
) -> Tensor:
    """Return rho, moved inside the floor keep_share rho_a + min_weight of the included groups."""
    fixed = FixedShares(census.group_shares, census.included, keep_share)
    check_floor(method, min_weight, int(fixed.included.sum()), "groups", fixed.free)
    if min_weight == 0:
        return fixed.shares
    chosen = fixed.chosen(fixed.shares)
    return fixed.weights(project_on_simplex(chosen, floor=fixed.floor(min_weight)))


def uniform_weights(census: Census) -> Tensor:
    """Return equal weights for all included groups; the small ones have their share."""
    included, shares = census.included, census.group_shares
    return torch.where(included, (1.0 - shares[~included].sum()) / included.sum(), shares)


def weigh_by_group(order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
    """n_k (theta - theta_k) = eta sum_i w_{a_i} grad loss_i, on the scale n_k."""
    return RowWeights(order.weights.expand(len(sites), -1), counts.sum(dim=1).to(torch.float64))


# How often in a row a candidate is sent again because sites were missing.
MAX_REPEATS = 3


@dataclass(frozen=True, eq=False)
class RiskSums:
    """By player: rows [m], losses [m], gradients [m, p] and packed curvature [m, q], if any.

    A player without rows was absent from this round.
    """

    counts: Tensor
    losses: Tensor
    gradients: Tensor
    curvature: Tensor
    rounding: SumRounding = NOT_ROUNDED


@dataclass(frozen=True)
class LocalTraining:
    """Local epochs of mini-batches.

    Args:
        learning_rate: the rate of each step, eta.
        epochs: how often a site goes through its records in a round, E.
        batch_size: records of a step, B; None means all of them.
        output: which of the run's models is returned.
    """

    _: KW_ONLY
    learning_rate: float = 0.1
    epochs: int = 15
    batch_size: int | None = 100
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def check_training(self, name: str) -> None:
        """Refuse invalid settings of the method with this name."""
        check_positive(name, learning_rate=self.learning_rate)
        check_plan(name, self.epochs, self.batch_size)

    @property
    def plan(self) -> LocalEpochs:
        """How a site trains."""
        return LocalEpochs(self.epochs, self.batch_size, self.learning_rate)

    def train(
        self,
        order: Order,
        site: SiteData,
        workspace: Workspace,
        row_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the trained parameters, from those that are loaded.

        The first training in a round has the draws of a first request, whatever came before it.
        """
        stream = local_stream(replace(order, phase=0), site)
        return train_locally(workspace, site.examples, self.plan, stream, row_weights)

    def with_step(
        self,
        before: Sums,
        order: Order,
        site: SiteData,
        trained: Tensor,
        weight: float | None = None,
    ) -> Sums:
        """Add the displacement times a weight, and on that scale; by default that is n_k."""
        rows = len(site.examples)
        scale = float(rows) if weight is None else weight
        return replace(
            before,
            step=displacement(order, trained).mul_(scale),
            scale=scale,
            gradient_evaluations=rows * self.epochs,
        )

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train and return n_k (theta - theta_k) on the scale n_k."""
        before = sums_before_training(order, site, workspace)
        return self.with_step(before, order, site, self.train(order, site, workspace))

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by the plan's epochs."""
        return expect_local_epochs(order, sender, reply, self.plan)
