"""TERM over holders: each holder's update counts in proportion to the exponential of its loss.

Li, Beirami, Sanjabi, Smith: Tilted empirical risk minimization, ICLR 2021:
J = (1/t) log sum_k p_k exp(t R_k). With ``group_tilt`` tau a holder's R_k is itself a tilted mean
of its groups' risks, (1/tau) log sum_a (n_{a,k} / n_k) exp(tau r_{a,k}): client-then-group tilt;
without it R_k is the holder's mean loss. Local epochs start from the broadcast model, with the
groups' weights fixed at their values there.

| symbol | name                              |
|--------|-----------------------------------|
| t, tau | tilt, group_tilt                  |
| p_k    | n_k / n                           |
| R_k    | the holder's tilted loss          |

The weights are normalised exactly over the holders that took part. Each holder scales its own
reply by exp(t (R_k - reference)), with the reference that the server broadcast: it cancels in the
quotient of the sums, so the server sees no holder's loss.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.messages import Census, Moment, Order, Reveals, Sums, descend
from fedminmax.core.workspace import Workspace
from fedminmax.methods.bounded_exponential import bounded_exponential
from fedminmax.methods.checks import check_not_negative, check_plan, check_positive
from fedminmax.methods.fedavg import NO_WEIGHTS, local_stream
from fedminmax.methods.group_term import tilted_mean, tilted_weights
from fedminmax.methods.local_sums import displacement, sums_before_training
from fedminmax.methods.method import Holder


@dataclass(frozen=True, eq=False)
class TERMState:
    """theta^t, and the loss that the holders' are compared with in the next round."""

    parameters: Tensor
    reference_loss: float

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights."""
        return NO_WEIGHTS


@dataclass(frozen=True)
class TERM:
    """Tilted mean over holders; ``tilt=0`` equals FedAvg, large tilts approach minimax."""

    tilt: float = 0.1
    group_tilt: float = 0.0
    learning_rate: float = 0.1
    epochs: int = 15
    batch_size: int | None = 100
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_not_negative("TERM", tilt=self.tilt, group_tilt=self.group_tilt)
        check_positive("TERM", learning_rate=self.learning_rate)
        check_plan("TERM", self.epochs, self.batch_size)

    @property
    def name(self) -> str:
        """The name in tables, with t and tau."""
        groups = f", tau={self.group_tilt:g}" if self.group_tilt else ""
        return f"TERM (t={self.tilt:g}{groups})"

    def init(self, parameters: Tensor, census: Census) -> TERMState:  # noqa: ARG002
        """Start from the initial model; nobody has told a loss yet."""
        return TERMState(parameters, 0.0)

    def order(self, state: TERMState, moment: Moment) -> Order:
        """Broadcast the model and the reference loss."""
        reference = torch.tensor([state.reference_loss], dtype=torch.float64)
        return Order(moment, state.parameters, reference)

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Train and return n_k e_k (theta - theta_k) on the scale n_k e_k."""
        before = sums_before_training(order, holder, workspace)
        rows = len(holder.examples)
        loss, group_weights = self._tilt_groups(before, rows)
        trained = train_locally(
            workspace,
            holder.examples,
            LocalEpochs(self.epochs, self.batch_size, self.learning_rate),
            local_stream(order, holder),
            row_weights=None
            if self.group_tilt == 0
            else group_weights.to(order.parameters)[holder.examples.group],
        )
        exponent = self.tilt * (loss - float(order.weights[0]))
        weight = rows * bounded_exponential(exponent)
        return replace(
            before,
            step=displacement(order, trained).mul_(weight),
            scale=weight,
            gradient_evaluations=rows * self.epochs,
        )

    def _tilt_groups(self, before: Sums, rows: int) -> tuple[float, Tensor]:
        """Return R_k, and the weight of a row of each group in its gradient."""
        present = before.group_count > 0
        shares = before.group_count[present].to(torch.float64) / rows
        risks = before.group_risks[present]
        weights = torch.zeros_like(before.group_loss)
        weights[present] = tilted_weights(shares, risks, self.group_tilt) / shares
        return float(tilted_mean(shares, risks, self.group_tilt)), weights

    def update(self, state: TERMState, total: Sums) -> TERMState:
        """Step by the quotient; the mean loss is near the next round's losses."""
        mean_loss = float(total.group_loss.sum()) / int(total.group_count.sum())
        return TERMState(descend(state.parameters, total), mean_loss)
