"""What methods with local epochs share: their settings, how a site trains, and what it replies.

A site trains by ClientUpdate of McMahan et al. 2017 (see ``core.local_epochs``) from the model that
it received, and returns n_k (theta - theta_k) on the scale n_k, or with another weight than n_k.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.messages import Order, Reveals, Sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_plan, check_positive
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import displacement, local_stream, sums_before_training


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
