"""Rounds for MLflow: one run per run folder, with the method's options as parameters."""

import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.exports.mlflow_model import write_mlflow
from fedminmax.exports.saved_model import MODEL_FILE
from fedminmax.training.round_record import RoundRecord, scalars

EXPERIMENT = "fedminmax"
RUN_FILE = "mlflow_run.txt"


class MlflowLog:
    """A run at a tracking address; later calls for the same folder continue the same run."""

    def __init__(
        self, address: str, folder: Path, groups: Sequence[str], options: Mapping[str, object]
    ) -> None:
        self._groups = groups
        try:
            self._client = MlflowClient(tracking_uri=address)
            self._run = _run_of(folder, self._client, options)
        except (MlflowException, ImportError) as error:
            raise InputError(
                f"mlflow_uri = '{address}' cannot be used ({_reason(error)}); give one such as "
                "sqlite:///mlflow.db, or omit it"
            ) from error

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        now = int(time.time() * 1000)
        metrics = [
            # MLflow allows few characters in names.
            Metric(re.sub(r"[^\w. /-]", "_", name, flags=re.ASCII), value, now, record.round)
            for name, value in scalars(record, self._groups).items()
        ]
        try:
            self._client.log_batch(self._run, metrics=metrics)
        except MlflowException as error:
            raise InputError(
                f"MLflow did not accept round {record.round} ({_reason(error)}); run the same "
                "command again to continue from the checkpoint, or without mlflow"
            ) from error

    def close(self) -> None:
        """Mark the run as terminated."""
        # A server that refused a round also refuses this: report only the first reason.
        stopped = sys.exception() is not None
        try:
            self._client.set_terminated(self._run)
        except MlflowException as error:
            if not stopped:
                raise InputError(
                    f"MLflow did not accept the end of the run ({_reason(error)}); it has the "
                    "rounds, and the run folder has everything"
                ) from error


def log_model(address: str, folder: Path) -> None:
    """Add the trained model to the folder's MLflow run, as `model`; a later one replaces it."""
    with tempfile.TemporaryDirectory() as temporary:
        write_mlflow(Path(temporary) / "model", folder / MODEL_FILE)
        try:
            client = MlflowClient(tracking_uri=address)
            run = (folder / RUN_FILE).read_text(encoding="utf-8").strip()
            client.log_artifacts(run, str(Path(temporary) / "model"), "model")
        except MlflowException as error:
            raise InputError(
                f"MLflow did not accept the model ({_reason(error)}); the run folder has it: "
                f"fedminmax export {folder} --mlflow-model FOLDER"
            ) from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _run_of(folder: Path, client: MlflowClient, options: Mapping[str, object]) -> str:
    """Return the folder's run, or create one and store its id in the folder."""
    path = folder / RUN_FILE
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    found = client.get_experiment_by_name(EXPERIMENT)
    experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
    run: str = client.create_run(experiment, run_name=str(folder)).info.run_id
    client.log_batch(run, params=[Param(name, str(value)) for name, value in options.items()])
    write_text(path, run + "\n")
    return run
