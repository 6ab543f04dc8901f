"""Rounds of FedMinMax in Flower's simulation: a strategy, a client app, one Ray actor per core.

    python -m benchmarks.peers.flower_rounds --experiment synthetic|fashion-mnist
        --rows N --sites K --rounds R --json FILE

An actor makes the rows once and keeps them; what travels each round is theta, the groups'
weights, theta_k and the site's sums.
"""

import copy
import logging
import os
from collections.abc import Iterable
from functools import cache
from typing import Any

# Switch off the telemetry of Flower and Ray; must be set before they are imported.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# The default of later versions of Ray; setting it avoids a warning.
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import flwr
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from benchmarks.peers.job import (
    LEARNING_RATE,
    GroupSums,
    GroupWeights,
    Job,
    Stopwatch,
    TreeMemory,
    cores,
    gradient_pass,
    read_options,
    write_result,
)


@cache
def _model_of(job: Job) -> nn.Module:
    """Return the actor's own model, whose parameters every message overwrites."""
    return copy.deepcopy(job.workload().model)


def train_site(message: Message, context: Context) -> Message:
    """Take one full-batch step from theta; return theta_k, n_k and the groups' sums at theta."""
    config, place = message.content["config"], context.node_config
    job = Job(config["experiment"], config["rows"], place["num-partitions"])
    torch.set_num_threads(job.cores_per_site)
    model = _model_of(job)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    importance = torch.tensor(config["importance"], dtype=torch.float64)
    sums = gradient_pass(model, job, job.rows_of(place["partition-id"]), importance)
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=LEARNING_RATE)
    metrics = {
        "num-examples": int(sums.counts.sum()),
        "losses": sums.losses.tolist(),
        "counts": sums.counts.tolist(),
    }
    reply = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(reply), reply_to=message)


client_app = ClientApp()
client_app.train()(train_site)


def add_up(replies: list[RecordDict], _weight_key: str) -> MetricRecord:
    """Add the sites' sums; Flower's default would take a weighted mean."""

    def total(key: str) -> list[float]:
        values = torch.tensor([reply["metrics"][key] for reply in replies], dtype=torch.float64)
        return values.sum(dim=0).tolist()

    return MetricRecord({key: total(key) for key in ("losses", "counts")})


class FedMinMaxStrategy(FedAvg):  # type: ignore[misc]  # mypy does not see Flower
    """Flower's FedAvg averages theta_k by n_k; this adds the groups' weights to it."""

    def __init__(self, job: Job, watch: Stopwatch) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=job.sites,
            min_available_nodes=job.sites,
            train_metrics_aggr_fn=add_up,
        )
        self.groups = GroupWeights(job)
        self.watch = watch

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send w = mu / rho along with theta."""
        if server_round == 1:
            self.watch.restart()
        config["importance"] = self.groups.importance.tolist()
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average theta_k, and move mu along the risks of the theta that was sent."""
        received = list(replies)
        for reply in received:
            if reply.has_error():
                raise RuntimeError(f"a Flower client failed: {reply.error.reason}")
        arrays, metrics = super().aggregate_train(server_round, received)
        self.groups.ascend(GroupSums(_float64(metrics["losses"]), _float64(metrics["counts"])))
        self.watch.round_done()
        return arrays, metrics


def _float64(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def run_rounds(job: Job, watch: Stopwatch) -> nn.Module:
    """Simulate all rounds and return the final model."""
    model = copy.deepcopy(job.workload().model)

    def serve(grid: Grid, _context: Context) -> None:
        result = FedMinMaxStrategy(job, watch).start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=job.rounds,
            train_config=ConfigRecord({"experiment": job.experiment, "rows": job.rows}),
        )
        model.load_state_dict(result.arrays.to_torch_state_dict())

    server_app = ServerApp()
    server_app.main()(serve)
    backend: dict[str, dict[str, Any]] = {
        "client_resources": {"num_cpus": job.cores_per_site, "num_gpus": 0.0},
        "init_args": {
            "num_cpus": cores(),
            "logging_level": logging.ERROR,
            "log_to_driver": False,
        },
    }
    run_simulation(server_app, client_app, num_supernodes=job.sites, backend_config=backend)
    return model


def main() -> None:
    """Run the job of the command line."""
    job, file = read_options("python -m benchmarks.peers.flower_rounds", __doc__)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    watch = Stopwatch()
    with TreeMemory() as memory:
        model = run_rounds(job, watch)
    write_result(file, f"Flower {flwr.__version__}", job, watch, memory, model)


if __name__ == "__main__":
    # Ray copies what is in __main__ by value, including caches; what is imported under its own
    # name it finds in each actor.
    from benchmarks.peers import flower_rounds

    flower_rounds.main()
