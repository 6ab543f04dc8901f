"""Agnostic federated learning (AFL): minimax over sites, regardless of groups.

Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019, in the non-stochastic form that
Papadaki et al. 2021 compare with: full-batch gradients, both players at once, averaged iterates.

| symbol      | name                       |
|-------------|----------------------------|
| lambda^t    | state.weights, order.weights |
| eta_lambda  | adversary_rate             |

With ``keep_share`` k, lambda_k >= k n_k / n: the objective is then k times the mean risk plus the
rest times the worst site's (see ``simplex.FixedShares``). The paper has k = 0.

With c sites per group, one ascent step moves a group's weight c times as far as FedMinMax's;
``scale_adversary_rate`` divides the rate by sites / groups, for the same fixed point at
FedMinMax's speed.

Stochastic-AFL is the same paper's form for a few rows and a few sites per round, with both unbiased
estimates of the model's gradient. The gradient in lambda is |K| times a batch's loss at the
coordinate of a site drawn uniformly. Several draws are averaged.

| symbol                    | name                        |
|---------------------------|-----------------------------|
| p_k = n_k / n             | state.row_shares            |
| c in c chi^2(lambda || p) | chi_squared                 |

With a penalty, lambda ascends on <lambda, r> - c sum_k (lambda_k - p_k)^2 / p_k. A step must not
overshoot p: adversary_rate * c should stay below half of the smallest p_k.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import shuffled_batches
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import (
    ADVERSARY,
    KEEP,
    SAFE_RATE,
    START,
    MethodCard,
    Over,
    Pace,
    Weights,
)
from fedminmax.methods.method import RowWeights, SiteData, rate_of
from fedminmax.methods.shared.checks import (
    check_keep_share,
    check_not_negative,
    check_rate,
    check_whole,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    batch_sizes,
    one_batch_reach,
)
from fedminmax.methods.shared.replies import local_stream, sums_before_training
from fedminmax.methods.shared.sampling import draw_sites, mean_loss, only_rows, with_own_loss


class AFLStart(Enum):
    """lambda^0: in proportion to the sites' rows, or the same for all."""

    ROWS = "rows"
    UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class AFLState:
    """theta^t, lambda^t and its running sum, the rate after scaling, the sites' shares p.

    ``kept`` is what each site's weight is at least.
    """

    parameters: Tensor
    weights: Tensor
    weight_sum: Tensor
    rounds: int
    rate: float
    row_shares: Tensor
    kept: Tensor

    @property
    def average_weights(self) -> Tensor:
        """The averaged lambda that the paper returns along with the averaged model."""
        return self.weight_sum / max(1, self.rounds)

    def moved(self, parameters: Tensor, weights: Tensor) -> "AFLState":
        """Return the state after a round that ends with this model and this lambda."""
        weight_sum, rounds = self.weight_sum + weights, self.rounds + 1
        return replace(
            self, parameters=parameters, weights=weights, weight_sum=weight_sum, rounds=rounds
        )


@MethodCard(
    key="afl",
    paper="Mohri, Sivek, Suresh, ICML 2019",
    optimises="worst site's risk",
    over=Over.SITES,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.SITES,
    sources=SAFE_RATE
    | ADVERSARY
    | START
    | KEEP
    | {"scale_adversary_rate": "ours: off, as in the paper"},
)
@dataclass(frozen=True)
class AFL:
    """Minimax over sites. ``adversary_rate=0`` with start ROWS is plain risk minimisation."""

    learning_rate: float | None = None
    adversary_rate: float = 0.1
    _: KW_ONLY
    start: AFLStart = AFLStart.ROWS
    scale_adversary_rate: bool = False
    keep_share: float = 0.0
    name: str = "AFL"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_rate(self.name, self.learning_rate)
        check_not_negative(self.name, adversary_rate=self.adversary_rate)
        check_keep_share(self.name, self.keep_share)

    def init(self, parameters: Tensor, census: Census) -> AFLState:
        """lambda^0 over the sites with rows; an empty site never gets weight."""
        weights = census.site_shares
        occupied = census.site_counts > 0
        if self.start is AFLStart.UNIFORM:
            weights = occupied.to(torch.float64) / occupied.sum()
        rate = self.adversary_rate
        if self.scale_adversary_rate:
            rate *= census.groups / int(occupied.sum())
        shares = census.site_shares
        fixed = FixedShares(shares, occupied, self.keep_share)
        if self.start is AFLStart.UNIFORM:
            weights = fixed.inside(weights)
        return AFLState(parameters, weights, torch.zeros_like(weights), 0, rate, shares, fixed.kept)

    def order(self, state: AFLState, key: RoundKey) -> Order:
        """Broadcast theta^{t-1} and lambda^{t-1}; a site uses only its own entry."""
        return Order(key, state.parameters, state.weights)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """lambda_k (theta - theta_k) = eta (lambda_k / n_k) sum_i grad loss_i."""
        site_weights = order.weights[sites]
        per_row = site_weights / counts.sum(dim=1)
        return RowWeights(per_row.unsqueeze(1).expand_as(counts), site_weights)

    def update(self, state: AFLState, total: Sums) -> AFLState:
        """Descend in theta, ascend in lambda; a site that did not answer keeps its weight."""
        weights = ascend_on_simplex(
            state.weights,
            total.site_risks,
            total.site_count > 0,
            rate=state.rate,
            kept=state.kept,
        )
        return state.moved(descend(state.parameters, total), weights)


class GradientEstimator(Enum):
    """Every site's batch, weighted by lambda; or the plain mean over sites drawn by lambda."""

    PER_DOMAIN = "per domain"
    WEIGHTED = "weighted"


@MethodCard(
    key="stochastic-afl",
    paper="Mohri, Sivek, Suresh, ICML 2019, Stochastic-AFL",
    optimises="worst site's risk",
    over=Over.SITES,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.SITES,
    sources=SAFE_RATE
    | ADVERSARY
    | START
    | KEEP
    | {
        "estimator": "the paper's first",
        "draws": "the paper",
        "batch_size": "the paper",
        "chi_squared": "the paper: optional",
    },
)
@dataclass(frozen=True)
class StochasticAFL:
    """AFL on batches; ``batch_size=None`` takes all rows of a site.

    ``draws`` is the number of draws for the losses, and with WEIGHTED also for the gradient.
    """

    learning_rate: float | None = None
    adversary_rate: float = 0.1
    _: KW_ONLY
    estimator: GradientEstimator = GradientEstimator.PER_DOMAIN
    draws: int = 1
    batch_size: int | None = 1
    chi_squared: float = 0.0
    start: AFLStart = AFLStart.ROWS
    keep_share: float = 0.0
    name: str = "Stochastic-AFL"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_rate(self.name, self.learning_rate)
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, chi_squared=self.chi_squared
        )
        check_keep_share(self.name, self.keep_share)
        check_whole(self.name, minimum=1, draws=self.draws)
        if self.batch_size is not None:
            check_whole(self.name, minimum=1, batch_size=self.batch_size)

    def init(self, parameters: Tensor, census: Census) -> AFLState:
        """lambda^0 as in AFL."""
        afl = AFL(adversary_rate=self.adversary_rate, start=self.start, keep_share=self.keep_share)
        return afl.init(parameters, census)

    def order(self, state: AFLState, key: RoundKey) -> Order:
        """Broadcast the model, the weight of each site's gradient, and its number of losses."""
        rng = numpy_stream(key.seed, Purpose.SERVER_DRAWS, key.round)
        step_weights = state.weights
        if self.estimator is GradientEstimator.WEIGHTED:
            step_weights = draw_sites(state.weights, self.draws, rng)
        loss_draws = draw_sites(state.row_shares > 0, self.draws, rng)
        return Order(key, state.parameters, torch.stack([step_weights, loss_draws]))

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the weighted batch gradient, and the drawn loss from separate batches."""
        reply = sums_before_training(order, site, workspace)
        step_weight, loss_draws = order.weights[:, site.number].tolist()
        stream = local_stream(order, site)
        loss = 0.0
        if loss_draws:
            drawn = self._draw_rows(site, int(loss_draws), stream)
            loss = loss_draws * mean_loss(sums_before_training(order, drawn, workspace))
        reply = with_own_loss(replace(reply, step=torch.zeros_like(order.parameters)), site, loss)
        if step_weight == 0:
            return reply
        per_domain = self.estimator is GradientEstimator.PER_DOMAIN
        rows = self._draw_rows(site, 1 if per_domain else int(step_weight), stream).examples
        row_weights = order.parameters.new_full((len(rows),), step_weight / len(rows))
        gradient, _ = weighted_gradient([workspace], rows, row_weights, site.rows_per_chunk)
        return replace(
            reply,
            step=gradient * rate_of(self),
            scale=step_weight,
            gradient_evaluations=len(rows),
        )

    def _draw_rows(self, site: SiteData, times: int, stream: torch.Generator) -> SiteData:
        """Draw ``times`` batches, each from all rows, and concatenate them.

        They have equal sizes, so the mean over all is the mean of the batches' means.
        """
        rows = len(site.examples)
        drawn = [next(shuffled_batches(rows, self.batch_size, stream)) for _ in range(times)]
        parts = [batch for batch in drawn if batch is not None]
        return only_rows(site, torch.cat(parts) if parts else None)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """A weighted batch gradient, and the mean loss of other batches times its draws."""
        step_weight, loss_draws = order.weights[:, sender.number].tolist()
        size = batch_sizes(sender.rows, self.batch_size)[0]
        draws = 1 if self.estimator is GradientEstimator.PER_DOMAIN else int(step_weight)
        drawn = sender.rows if size == sender.rows else draws * size
        highest = min(sender.limits.max_loss, float(reply.group_loss.sum()) / size)
        return ExpectedReply(
            numbers=len(order.parameters),
            scale=step_weight,
            rows=sender.rows,
            evaluations=drawn if step_weight else 0,
            reach=rate_of(self) * step_weight * one_batch_reach(sender, reply, size),
            own_loss=OwnLoss(1, 0.0, loss_draws * highest),
        )

    def update(self, state: AFLState, total: Sums) -> AFLState:
        """Descend in the model, ascend in lambda; absent sites keep their weight."""
        sites = int((state.row_shares > 0).sum())
        excess = state.weights / state.row_shares - 1.0
        weights = ascend_on_simplex(
            state.weights,
            sites / self.draws * total.site_risks - 2.0 * self.chi_squared * excess,
            total.site_count > 0,
            rate=self.adversary_rate,
            kept=state.kept,
        )
        return state.moved(descend(state.parameters, total), weights)
