"""Put the results of a finished run together."""

from collections.abc import Sequence
from statistics import median_high

import torch

from fedminmax.advice.cost import message_bytes, usual_rounds
from fedminmax.advice.counts import nearest_to_weights
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.data.tables.census import CensusFile
from fedminmax.data.tables.encoding import Encoding
from fedminmax.findings.records import CostOfRun, ReachOfRun, Results
from fedminmax.runs.plan import TableRun
from fedminmax.training.round_record import RoundRecord


def reach_of_run(rounds: Sequence[RoundRecord], census: CensusFile) -> ReachOfRun | None:
    """Return the final weights' distance to the hull; None for a run without group weights."""
    if not rounds or rounds[-1].weights_over != "groups":
        return None
    weights = rounds[-1].weights
    found = nearest_to_weights(census.train, weights)
    return ReachOfRun(weights=weights, distance=found.distance)


def add_advice(
    results: Results,
    run: TableRun,
    *,
    task: Task,
    encoding: Encoding,
    census: CensusFile,
    rounds: Sequence[RoundRecord],
    masked: bool = False,
    fixed_rounds: bool = False,
) -> Results:
    """Add the reach of the final weights and the run's cost, over a network also as counted.

    With ``masked`` sums nobody knows whose rows are whose, and messages are as long as counted:
    keys and shares travel, too. With a privacy guarantee rounds are fixed beforehand, and no
    estimate is compared with them.
    """
    linear = linear_structure_of(task)
    rows = Census(torch.tensor(census.train), len(results.classes), linear=linear)
    row = torch.zeros(len(encoding.names))
    validates = any(map(any, census.validation))
    messages = message_bytes(run.method, task, rows, row, validates=validates)
    cost: dict[str, object] = {"bytes_down": messages.down, "bytes_up": messages.up}
    usual = usual_rounds(run.card.key, linear=linear is not None, loss=results.loss)
    if usual is not None and not fixed_rounds:
        cost["usual_rounds"] = (usual.low, usual.high)
    if results.sites is not None:
        cost["counted_down"] = median_high([entry.sites.bytes_out for entry in rounds])
        cost["counted_up"] = median_high([entry.sites.bytes_in for entry in rounds])
        if masked:
            cost["bytes_down"], cost["bytes_up"] = cost["counted_down"], cost["counted_up"]
    changes: dict[str, object] = {"cost": CostOfRun.model_validate(cost)}
    reach = None if masked else reach_of_run(rounds, census)
    if reach is not None:
        changes["reach"] = reach
    return results.model_copy(update=changes)
