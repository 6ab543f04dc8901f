"""Rounds for MLflow, one run per run folder, and a saved model as an MLflow model.

So `mlflow models serve` answers for raw columns. The model's folder has the flavour
`python_function` with this module as its loader: loading it reads the model file, as ``load_model``
does, and runs no code from the folder. Rows come as in the files that the model was trained on
(numbers and text, null or empty where a value is missing) and answers are the columns that
`fedminmax predict` writes.
"""

import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from fedminmax import __version__
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, load_model
from fedminmax.training.round_record import RoundRecord, scalars

if TYPE_CHECKING:  # who has no package for MLflow is told of it, not of pandas
    import pandas as pd

# The file by which MLflow knows a model.
MLFLOW_MARK = "MLmodel"
# Serving needs pandas, which MLflow uses for tables of rows.
REQUIREMENTS = [f"fedminmax[tables]=={__version__}", "pandas"]


def write_mlflow(folder: Path, model: Path) -> None:
    """Write a model file as an MLflow model, in full or not at all; an earlier one is replaced."""
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not is_empty and not (folder / MLFLOW_MARK).is_file():
        raise InputError(
            f"{folder} exists and is not an MLflow model (it has no file {MLFLOW_MARK}), so it is "
            "not replaced; give another --mlflow-model"
        )
    # A damaged file is found here, not where it is served.
    load_model(model)
    with warnings.catch_warnings():
        # MLflow warns of its own type hints when it is imported.
        warnings.filterwarnings("ignore", message=".*type hint", category=UserWarning)
        from mlflow.pyfunc import save_model as save_pyfunc
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        new = Path(beside) / "model"
        try:
            save_pyfunc(
                new,
                loader_module=__name__,
                data_path=model,
                pip_requirements=REQUIREMENTS,
            )
        except MlflowException as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"MLflow cannot write {folder} ({reason})") from error
        if folder.exists():
            shutil.move(folder, Path(beside) / "before")
        new.replace(folder)


def model_file_of(run: Path) -> Path:
    """Return the model file of a run folder, or the file itself."""
    return run / MODEL_FILE if run.is_dir() else run


class ServedModel:
    """What MLflow calls for rows."""

    def __init__(self, saved: SavedModel) -> None:
        self._saved = saved

    def predict(
        self,
        rows: "pd.DataFrame",
        params: dict[str, Any] | None = None,  # noqa: ARG002 - MLflow gives it by name
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each row and, for classes, probabilities, by name."""
        saved = self._saved
        return saved.answer_columns(saved.scores(saved.encode(rows))).to_dicts()


def _load_pyfunc(path: str) -> ServedModel:
    """Load the model; MLflow calls this."""
    return ServedModel(load_model(path))


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
