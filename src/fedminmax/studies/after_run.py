"""Adds to a finished run's results what the adviser says of it."""

from collections.abc import Sequence
from statistics import median_high

import torch

from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.data.tables.encoding import Encoding
from fedminmax.federation.network_log import NetworkRound
from fedminmax.federation.run_cost import message_bytes, usual_rounds
from fedminmax.report.advice_of_run import reach_of_run
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import CensusFile, CostOfRun, Results
from fedminmax.studies.table_runs import TableRun


def add_advice(
    results: Results,
    run: TableRun,
    task: Task,
    encoding: Encoding,
    census: CensusFile,
    rounds: Sequence[RoundRecord],
    counted: Sequence[NetworkRound] = (),
    *,
    compress: bool = False,
) -> Results:
    """Say where the final weights lie and what the run cost; ``counted`` are a network's rounds."""
    linear = linear_structure_of(task)
    rows = Census(torch.tensor(census.train), len(results.classes), linear)
    row = torch.zeros(len(encoding.names))
    validates = any(map(any, census.validation))
    messages = message_bytes(run.method, task, rows, row, compress=compress, validates=validates)
    cost: dict[str, object] = {"bytes_down": messages.down, "bytes_up": messages.up}
    usual = usual_rounds(run.card.key, linear=linear is not None, loss=results.loss)
    if usual is not None:
        cost["usual_rounds"] = (usual.low, usual.high)
    if counted:
        cost["counted_down"] = median_high([entry.bytes_out for entry in counted])
        cost["counted_up"] = median_high([entry.bytes_in for entry in counted])
    changes: dict[str, object] = {"cost": CostOfRun.model_validate(cost)}
    reach = reach_of_run(rounds, census)
    if reach is not None:
        changes["reach"] = reach
    return results.model_copy(update=changes)
