"""Stochastic-AFL: agnostic federated learning from a few rows and a few sites per round.

Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019, with both unbiased estimates of the
model's gradient. The gradient in lambda is |K| times a batch's loss at the coordinate of a site
drawn uniformly. Several draws are averaged. Both players move simultaneously; the model and lambda
are averaged over the rounds.

| symbol                    | name                        |
|---------------------------|-----------------------------|
| lambda^t                  | state.weights               |
| p_k = n_k / n             | state.row_shares            |
| eta_w, eta_lambda         | learning_rate, adversary_rate |
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
from fedminmax.core.solvers.simplex import ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.card import ADVERSARY, SAFE_RATE, START, MethodCard, Over, Pace, Weights
from fedminmax.methods.fedavg import local_stream
from fedminmax.methods.method import SiteData, rate_of
from fedminmax.methods.shared.checks import check_not_negative, check_rate, check_whole
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    batch_sizes,
    one_batch_reach,
)
from fedminmax.methods.shared.replies import sums_before_training
from fedminmax.methods.shared.sampling import draw_sites, mean_loss, only_rows, with_own_loss


class GradientEstimator(Enum):
    """Every site's batch, weighted by lambda; or the plain mean over sites drawn by lambda."""

    PER_DOMAIN = "per domain"
    WEIGHTED = "weighted"


@dataclass(frozen=True, eq=False)
class StochasticAFLState:
    """The model, lambda^t, the running sum of lambda, and the shares p of the sites' rows."""

    parameters: Tensor
    weights: Tensor
    weight_sum: Tensor
    rounds: int
    row_shares: Tensor

    @property
    def average_weights(self) -> Tensor:
        """The averaged lambda that the paper returns along with the averaged model."""
        return self.weight_sum / max(1, self.rounds)


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
    name: str = "Stochastic-AFL"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_rate(self.name, self.learning_rate)
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, chi_squared=self.chi_squared
        )
        check_whole(self.name, minimum=1, draws=self.draws)
        if self.batch_size is not None:
            check_whole(self.name, minimum=1, batch_size=self.batch_size)

    def init(self, parameters: Tensor, census: Census) -> StochasticAFLState:
        """lambda^0 as in AFL."""
        weights = AFL(start=self.start).init(parameters, census).weights
        return StochasticAFLState(
            parameters, weights, torch.zeros_like(weights), 0, census.site_shares
        )

    def order(self, state: StochasticAFLState, key: RoundKey) -> Order:
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

    def update(self, state: StochasticAFLState, total: Sums) -> StochasticAFLState:
        """Descend in the model, ascend in lambda; absent sites keep their weight."""
        sites = int((state.row_shares > 0).sum())
        excess = state.weights / state.row_shares - 1.0
        weights = ascend_on_simplex(
            state.weights,
            sites / self.draws * total.site_risks - 2.0 * self.chi_squared * excess,
            total.site_count > 0,
            rate=self.adversary_rate,
        )
        return StochasticAFLState(
            descend(state.parameters, total),
            weights,
            state.weight_sum + weights,
            state.rounds + 1,
            state.row_shares,
        )
