"""Rounds of FedMinMax in pfl-research: an algorithm on its simulated backend, in one process.

    python -m benchmarks.peers.pfl_rounds --experiment synthetic|fashion-mnist
        --rows N --sites K --rounds R --json FILE

The threads are PyTorch's, inside an operation. Batches of one site are small, so time it with
OMP_NUM_THREADS=1 too and take the better: where other work keeps a core busy, two are far slower.
"""

import copy
from importlib.metadata import version
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import Tensor, nn

from benchmarks.peers.job import (
    LEARNING_RATE,
    GroupSums,
    GroupWeights,
    Job,
    Stopwatch,
    TreeMemory,
    gradient_pass,
    read_options,
    write_result,
)
from fedminmax.core.losses import brier_loss


class Network(nn.Module):
    """The workload's model with the two methods that pfl's PyTorchModel requires."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """Return one output per class."""
        outputs: Tensor = self.layers(x)
        return outputs

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss."""
        return brier_loss(self(x), y).mean()

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Return the loss for pfl's own evaluation, which these rounds do not use."""
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


def _name(group: int) -> StringMetricName:
    return StringMetricName(f"loss of group {group}")


class FedMinMaxAlgorithm(FederatedAveraging):  # type: ignore[misc]  # mypy does not see pfl
    """Federated averaging after one weighted full-batch step, and weights that ascend."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.groups = GroupWeights(job)

    def simulate_one_user(
        self, model: PyTorchModel, user_dataset: PyTorchTensorDataset, _context: Any
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Return n_k (theta_k - theta) with weight n_k, and each group's loss sum and count.

        One step away from theta is minus the gradient, so theta need not be copied, moved and
        restored as pfl does for longer local training.
        """
        rows = len(user_dataset)
        sums = gradient_pass(
            model.pytorch_model, self.job, user_dataset.raw_data, self.groups.importance
        )
        steps = {}
        for name, parameter in model.variable_map.items():
            assert parameter.grad is not None
            steps[name] = parameter.grad.mul_(-LEARNING_RATE * rows)
        metrics = Metrics(
            (_name(group), Weighted(loss, count))
            for group, (loss, count) in enumerate(
                zip(sums.losses.tolist(), sums.counts.tolist(), strict=True)
            )
        )
        return MappedVectorStatistics(steps, weight=rows), metrics

    def process_aggregated_statistics(
        self,
        central_context: Any,
        aggregate_metrics: Metrics,
        model: PyTorchModel,
        statistics: MappedVectorStatistics,
    ) -> tuple[PyTorchModel, Metrics]:
        """Move theta by the average step, and mu along the risks of the theta that was sent."""
        found = [aggregate_metrics[_name(group)] for group in range(len(self.groups.shares))]
        losses, counts = ([v.weighted_value for v in found], [v.weight for v in found])
        self.groups.ascend(
            GroupSums(
                torch.tensor(losses, dtype=torch.float64), torch.tensor(counts, dtype=torch.float64)
            )
        )
        updated: tuple[PyTorchModel, Metrics] = super().process_aggregated_statistics(
            central_context, aggregate_metrics, model, statistics
        )
        return updated


class RoundTimes(TrainingProcessCallback):  # type: ignore[misc]  # mypy does not see pfl
    """Notifies the stopwatch when a round ends."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:  # noqa: ARG002
        """Start the first round."""
        self.watch.restart()
        return Metrics()

    def after_central_iteration(
        self,
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,  # noqa: ARG002
        *,
        central_iteration: int,  # noqa: ARG002
    ) -> tuple[bool, Metrics]:
        """End a round; never stop early."""
        self.watch.round_done()
        return False, Metrics()


def run_rounds(job: Job, watch: Stopwatch) -> nn.Module:
    """Simulate all rounds and return the final model."""
    users = [
        PyTorchTensorDataset(job.rows_of(site), user_id=str(site)) for site in range(job.sites)
    ]
    # A cohort as large as the population, drawn with minimum reuse, is the whole population.
    everybody = FederatedDataset(
        users.__getitem__, get_user_sampler("minimize_reuse", list(range(job.sites)))
    )
    network = Network(copy.deepcopy(job.workload().model))
    FedMinMaxAlgorithm(job).run(
        NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=job.rounds,
            train_cohort_size=job.sites,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=everybody, val_data=everybody),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=None, local_num_epochs=1, local_learning_rate=LEARNING_RATE
        ),
        callbacks=[RoundTimes(watch)],
        send_metrics_to_platform=False,
    )
    return network.layers


def main() -> None:
    """Run the job of the command line."""
    job, file = read_options("python -m benchmarks.peers.pfl_rounds", __doc__)
    watch = Stopwatch()
    with TreeMemory() as memory:
        model = run_rounds(job, watch)
    write_result(file, f"pfl-research {version('pfl')}", job, watch, memory, model)


if __name__ == "__main__":
    main()
