"""A saved model as an MLflow model, so that `mlflow models serve` answers for raw columns.

The folder has the flavour `python_function` with this module as its loader: loading it reads the
model file, as ``load_model`` does, and runs no code from the folder. Rows come as in the files that
the model was trained on (numbers and text, null or empty where a value is missing) and answers are
the columns that `fedminmax predict` writes.
"""

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException

from fedminmax import __version__
from fedminmax.core.errors import InputError
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, load_model

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
        rows: pd.DataFrame,
        params: dict[str, Any] | None = None,  # noqa: ARG002 - MLflow gives it by name
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each row and, for classes, probabilities, by name."""
        saved = self._saved
        return saved.answer_columns(saved.scores(saved.encode(rows))).to_dicts()


def _load_pyfunc(path: str) -> ServedModel:
    """Load the model; MLflow calls this."""
    return ServedModel(load_model(path))
