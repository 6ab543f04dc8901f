"""What a run over a network leaves: its rounds, agreement, last checkpoint and model."""

import shutil
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.mixture import Mixture
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.config import TableConfig
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.checkpoint import checkpoint_paths
from fedminmax.federation.network_log import ROUNDS_FILE
from fedminmax.federation.network_plan import NetworkPlan, task_of
from fedminmax.federation.network_run import read_members, run_folder
from fedminmax.report.model_file import FILE_NAME, save_model
from fedminmax.report.saved_model import SavedModel


def collect_network_run(
    served: Path, plan: NetworkPlan, number: int, config: TableConfig, folder: Path
) -> None:
    """Copy one of the plan's runs from the server's folder, and write its model to predict with."""
    source = run_folder(served, plan, number)
    folder.mkdir(parents=True, exist_ok=True)
    current, _ = checkpoint_paths(source)
    for path in (served / AGREEMENT_FILE, source / ROUNDS_FILE, current):
        shutil.copy(path, folder / path.name)
    earlier = read_agreement(served / AGREEMENT_FILE)
    if earlier is None:
        raise InputError(f"{served} has no {AGREEMENT_FILE}; the sites never agreed")
    encoding, _ = earlier
    task = task_of(plan, encoding)
    models = [model_with(task, parameters) for parameters in read_members(source)]
    chosen = plan.runs[number].iterate
    save_model(
        folder / FILE_NAME,
        SavedModel(
            models[0] if len(models) == 1 else Mixture(models, classifies=encoding.outputs > 1),
            encoding,
            config.model.kind,
            config.model.hidden,
            len(models),
            config.model.loss,
            chosen.value if chosen else "chosen by the method",
            config.delimiter,
        ),
    )
