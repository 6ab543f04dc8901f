"""q-FedAvg: sites with a higher loss pull harder, by the q-th power of their loss.

Li, Sanjabi, Beirami, Smith: Fair resource allocation in federated learning, ICLR 2020.
It descends sum_k p_k F_k^{q+1} / (q+1) with a step from an estimate of the local curvature.

| symbol                                   | name                  |
|------------------------------------------|-----------------------|
| F_k (before training)                    | loss                  |
| L = 1 / eta                              | lipschitz             |
| v_k = L (theta - theta_k)                | pull                  |
| Delta_k = F_k^q v_k                      | Sums.step             |
| h_k = q F_k^{q-1} |v_k|^2 + L F_k^q      | Sums.scale            |

Numerator and denominator may be divided by any common number. We divide F_k by a reference F near
the previous round's mean loss, phi_k = (F_k / F)^q, so that powers neither overflow nor underflow
while sites send only sums; the first round has no such loss and divides by 1. If the sum of the
scales shows that all powers were too small, or one too large, the same round is repeated with its
own mean loss as the reference: then the largest power is at least 1, and (F_k / F)^q is at most
(n / n_k)^q. If that is too large, the reference is increased by a factor, and a power that is still
too large is refused. So powers are never clipped. If all sites take part, p_k = n_k / n makes
q = 0 exactly FedAvg.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.validation import Judge, Players
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    LocalTraining,
    displacement,
    sums_before_training,
)

# A site that fits its rows perfectly must not divide by zero (q < 1) or vanish (q > 1).
MIN_LOSS = 1e-10
# Relative to a row with the mean loss, which counts 1.
VANISHING = 1e-20
# If all powers are this far below the reference's (in logarithms), the reference is unsuitable.
FAR_BELOW = 20.0
# The factor of a step is never exactly 0.
MIN_FACTOR = 1e-300
FIRST, SECOND = 0, 1


class SiteWeighting(Enum):
    """p_k: in proportion to the sites' rows, or the same for all."""

    ROWS = "rows"
    UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class QFedAvgState:
    """theta^t, the reference loss F of the next request, and the factor of the last step.

    ``step_factor`` is the length of the step relative to plain averaging with the same pulls:
    far below 1 the curvature term dominates, and the method stalls. It is 0 while a round waits
    for its second request.
    """

    parameters: Tensor
    reference_loss: float
    step_factor: float

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights."""
        return NO_WEIGHTS


@MethodCard(
    key="qfedavg",
    paper="Li, Sanjabi, Beirami, Smith, ICLR 2020",
    optimises="mean of the sites' risks to the power q + 1",
    over=Over.SITES,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE
    | LOCAL
    | {
        "q": "Papadaki et al. 2021 (0.2 and 5)",
        "weighting": "ours: n_k / n, so that q = 0 is FedAvg",
    },
    required={"q": "5"},
    requests=2,
)
@dataclass(frozen=True)
class QFedAvg(LocalTraining):
    """q-FedAvg; q = 0 equals FedAvg, larger q approaches minimax over sites."""

    q: float
    _: KW_ONLY
    weighting: SiteWeighting = SiteWeighting.ROWS

    def __post_init__(self) -> None:
        check_not_negative("q-FedAvg", q=self.q)
        self.check_training("q-FedAvg")

    @property
    def name(self) -> str:
        """The name in tables, with q."""
        return f"q-FedAvg (q={self.q:g})"

    @property
    def judge(self) -> Judge:
        """Validation rows judge by the same mean of powers."""
        return Judge(Players.SITES, power=self.q)

    def init(self, parameters: Tensor, census: Census) -> QFedAvgState:  # noqa: ARG002
        """Start from the initial model; no loss is known yet."""
        return QFedAvgState(parameters, 1.0, 1.0)

    def order(self, state: QFedAvgState, key: RoundKey) -> Order:
        """Broadcast the model and the reference loss."""
        reference = torch.tensor([state.reference_loss], dtype=torch.float64)
        return Order(key, state.parameters, reference, FIRST)

    def ask_again(self, state: QFedAvgState, key: RoundKey) -> Order | None:
        """Repeat the request with a better reference, if the powers were out of range."""
        if state.step_factor > 0:
            return None
        return replace(self.order(state, key), phase=SECOND)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train and return p_k Delta_k on the scale p_k h_k, both divided by F^q."""
        before = sums_before_training(order, site, workspace)
        rows = len(site.examples)
        loss = float(before.group_loss.sum()) / rows + MIN_LOSS
        if loss < 0:
            raise InputError(
                f"q-FedAvg takes powers of losses, but site {site.number} has a mean loss of "
                f"{loss:g}; use a loss that is never negative"
            )
        # A repeated request has the same draws, and so gives the same model.
        trained = self.train(order, site, workspace)
        lipschitz = 1.0 / self.learning_rate
        pull = displacement(order, trained).mul_(lipschitz)
        squared_length = float(torch.linalg.vector_norm(pull, dtype=torch.float64)) ** 2
        relative = self._relative_weight(order, loss, rows)
        curvature = relative * self.q * squared_length / loss
        return replace(
            before,
            step=pull.mul_(relative),
            scale=relative * lipschitz + curvature,
            curvature=curvature,
            gradient_evaluations=rows * self.epochs,
        )

    def _relative_weight(self, order: Order, loss: float, rows: int) -> float:
        """Return p_k phi_k; a power that is too large is clipped, and the request repeated."""
        weight = rows if self.weighting is SiteWeighting.ROWS else 1
        reference = float(order.weights[0])
        exponent, limit = self.q * math.log(loss / reference), _limit(order.parameters)
        if exponent > limit and order.phase == SECOND:
            raise InputError(
                f"q-FedAvg cannot take losses that differ so much to the power of {self.q:g}: one "
                f"is {loss / reference:g} times as large as its reference; use a smaller q"
            )
        return weight * math.exp(min(exponent, limit))

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """The weights follow from the reported losses, and the curvature from the step."""
        loss = max(float(reply.group_loss.sum()), 0.0) / sender.rows + MIN_LOSS
        relative = self._relative_weight(order, loss, sender.rows)
        weight = relative / self.learning_rate
        plain = expect_local_epochs(order, sender, reply, self.plan, weight=weight)
        length = float(torch.linalg.vector_norm(reply.step, dtype=torch.float64))
        curvature = self.q * length * (length / relative) / loss if relative > 0 else 0.0
        if relative < VANISHING and order.parameters.dtype != torch.float64:
            # Such a step underflows in single precision; its contribution is negligible.
            curvature = min(max(reply.curvature, curvature), VANISHING)
        return replace(plain, scale=weight + curvature, curvature=curvature)

    def update(self, state: QFedAvgState, total: Sums) -> QFedAvgState:
        """Step by the quotient, unless powers were out of range; store the next reference."""
        rows, limit = int(total.group_count.sum()), _limit(state.parameters)
        # The largest power is at most (n / n_k)^q; split the excess evenly.
        below = min(max(self.q * math.log(rows) - limit, 0.0), limit)
        mean_loss = max(float(total.group_loss.sum()), 0.0) / rows + MIN_LOSS
        reference = mean_loss * (math.exp(below / self.q) if self.q > 0 else 1.0)
        powers = (total.scale - total.curvature) * self.learning_rate
        # A clipped power is well above this.
        too_large = powers >= math.exp(limit - 1.0)
        too_small = total.scale * self.learning_rate < math.exp(-below - FAR_BELOW)
        if state.step_factor > 0 and (too_large or too_small):
            return QFedAvgState(state.parameters, reference, 0.0)
        share = total.curvature / total.scale if total.scale > 0 else 0.0
        return QFedAvgState(
            descend(state.parameters, total), reference, max(1.0 - share, MIN_FACTOR)
        )

    def update_again(self, state: QFedAvgState, total: Sums) -> QFedAvgState:
        """Step by the quotient."""
        return self.update(state, total)


def _limit(parameters: Tensor) -> float:
    """Return the largest exponent for which powers times steps and rows do not overflow."""
    return 0.5 * math.log(torch.finfo(parameters.dtype).max)
