"""Models that were trained elsewhere, and what they predict for the records of a table.

A model is an ONNX file, a skops file of scikit-learn, a run folder of `fedminmax train`, or columns
of predictions that the table has already. Reading an ONNX or skops file runs no code of it. A
pickle can run any code, so it is refused.

An ONNX file has an input for each column, by its name (as `fedminmax export --raw-columns` writes),
or one input with all columns side by side. Of several outputs, the probabilities are taken.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.file_format import BOOLEANS
from fedminmax.config.schema import Kind, Schema, Target
from fedminmax.core.errors import InputError
from fedminmax.core.text import quoted
from fedminmax.data.tables.given_predictions import (
    are_labels,
    are_numbers,
    checked_predictions,
    from_labels,
    sorted_classes,
)
from fedminmax.data.tables.parse_columns import Column, parse_numbers, text_of
from fedminmax.data.tables.read_file import FileTable
from fedminmax.exports.saved_model import SavedModel, load_model

# How ONNX names the types of inputs: texts, numbers and, if there is no other output, labels.
TEXT = "tensor(string)"
NUMBERS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
WHOLE = ("tensor(int64)", "tensor(int32)")
PICKLE_MARK, ZIP_MARK = b"\x80", b"PK\x03\x04"
SKOPS_CONTENT = "schema.json"
ADVICE = "give an ONNX or skops file, a run folder, or predictions as a column with --predictions"


def read_model(path: Path, columns: Sequence[str] = ()) -> "GivenModel":
    """Read a model by the content of its file; ``columns`` are those of its one input."""
    if path.is_dir():
        return TrainedRun(str(path), load_model(path))
    if not path.is_file():
        raise InputError(f"{path} does not exist; {ADVICE}")
    with path.open("rb") as file:
        start = file.read(len(ZIP_MARK))
    if start.startswith(PICKLE_MARK):
        raise InputError(
            f"{path} is a pickle, which can run any code when it is read; save the model as ONNX "
            "or with skops.io.dump, and give that"
        )
    if start == ZIP_MARK:
        with zipfile.ZipFile(path) as archive:
            if SKOPS_CONTENT not in archive.namelist():
                raise InputError(f"{path} is an archive, but none of skops; {ADVICE}")
        return _read_skops(path, columns)
    return _read_onnx(path, columns)


@dataclass(frozen=True)
class PredictionColumns:
    """Predictions that the table has: of a class or number, or a probability for each class."""

    columns: tuple[str, ...]
    kind: str = "predictions"

    @property
    def name(self) -> str:
        """The columns."""
        return ", ".join(self.columns)

    def predict(self, table: FileTable, schema: Schema) -> NDArray[np.float64]:
        """Return the columns as probabilities or quantities; a class has probability 1."""
        table.require(self.columns, "which has predictions")
        target = schema.target
        if len(self.columns) == 1 and not target.is_quantity:
            texts = text_of(table.frame[self.columns[0]], schema.missing_values)
            if are_labels(texts.unique().to_list(), target):
                return from_labels(texts.to_numpy(), target, self.name)
        values = [_numbers(table, column, schema) for column in self.columns]
        given = values[0] if len(values) == 1 else np.stack(values, axis=1)
        return checked_predictions(given, target.classes, target, self.name)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The model of a run folder of `fedminmax train`."""

    name: str
    saved: SavedModel

    @property
    def kind(self) -> str:
        """What was trained."""
        return self.saved.kind

    @property
    def columns(self) -> tuple[str, ...]:
        """The features."""
        return self.saved.encoding.schema.feature_columns

    def predict(self, table: FileTable, schema: Schema) -> NDArray[np.float64]:
        """Return what the run predicts for these records."""
        scores = self.saved.scores(self.saved.encode(table))
        return checked_predictions(scores, self.saved.classes, schema.target, self.name)


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A session of onnxruntime; ``kinds`` are those of columns that are no plain numbers."""

    name: str
    session: Any
    columns: tuple[str, ...]
    kinds: Mapping[str, Kind]
    classes: tuple[str, ...] = ()
    kind: str = "ONNX"

    def predict(self, table: FileTable, schema: Schema) -> NDArray[np.float64]:
        """Run the graph on these records."""
        from onnxruntime.capi import onnxruntime_pybind11_state as runtime

        table.require(self.columns, f"which {self.name} needs")
        inputs = self.session.get_inputs()
        if len(inputs) == 1 and len(self.columns) != 1:
            dtype = NUMBERS[inputs[0].type]
            parts = [_numbers(table, column, schema) for column in self.columns]
            fed = {inputs[0].name: _cast(np.stack(parts, axis=1), dtype, self.name)}
        else:
            fed = {own.name: self._column(table, schema, own.name, own.type) for own in inputs}
        outputs = {own.name: own for own in self.session.get_outputs()}
        try:
            results = dict(zip(outputs, self.session.run(None, fed), strict=True))
        except (runtime.Fail, runtime.InvalidArgument, runtime.RuntimeException) as error:
            raise _not_applied(self.name, table, error) from error
        return self._read(results, schema.target, len(table.frame))

    def assumption(self, target: Target) -> str | None:
        """Return which classes the outputs are taken for, if the file does not tell."""
        if target.is_quantity or self._tells(target):
            return None
        advice = "; --positive names the second" if len(target.classes) == 2 else ""
        return (
            f"{self.name} does not name its classes: its outputs are taken for "
            f"{quoted(self._order(target))}, in this order{advice}."
        )

    def _tells(self, target: Target) -> bool:
        """Return whether the file names its classes; whole numbers do if the target's are such."""
        kinds = {own.type for own in self.session.get_outputs()}
        named = self.classes or TEXT in kinds or any(kind.startswith("seq") for kind in kinds)
        return bool(named) or (not kinds.isdisjoint(WHOLE) and are_numbers(target))

    def _order(self, target: Target) -> tuple[str, ...]:
        if self._tells(target) or len(target.classes) != 2:
            return self.classes or sorted_classes(target)
        return target.classes

    def _column(self, table: FileTable, schema: Schema, name: str, kind: str) -> NDArray[Any]:
        if kind == TEXT:
            texts = text_of(table.frame[name], schema.missing_values).fill_null("")
            return np.array(texts.to_list(), object)[:, None]
        values = _numbers(table, name, schema, self.kinds.get(name))
        return _cast(values, NUMBERS[kind], self.name)[:, None]

    def _read(
        self, results: Mapping[str, Any], target: Target, records: int
    ) -> NDArray[np.float64]:
        """Return probabilities if there are any; otherwise labels, or quantities."""
        for found in results.values():
            if isinstance(found, list):
                # A ZipMap of scikit-learn's converter: a mapping from class to probability each.
                names = list(found[0]) if found else []
                table = np.array([[line[own] for own in names] for line in found], np.float64)
                own = tuple(map(str, names))
                return checked_predictions(table, own, target, self.name)
        tables = [np.asarray(found) for found in results.values()]
        floats = [own for own in tables if own.dtype.kind == "f"]
        if target.is_quantity or floats:
            values = (floats or tables)[-1].astype(np.float64)
            if len(values) != records:
                raise InputError(
                    f"{self.name} gave {len(values):,} predictions for {records:,} records; give a "
                    "model with one line of outputs for each record"
                )
            return checked_predictions(values, self._order(target), target, self.name)
        return from_labels(tables[0].reshape(records, -1)[:, 0], target, self.name)


@dataclass(frozen=True, eq=False)
class SkopsModel:
    """A fitted estimator or pipeline of scikit-learn, or one with its interface."""

    name: str
    estimator: Any
    columns: tuple[str, ...]
    kind: str = "scikit-learn"

    def predict(self, table: FileTable, schema: Schema) -> NDArray[np.float64]:
        """Return predict_proba, or what is predicted."""
        import pandas as pd

        table.require(self.columns, f"which {self.name} needs")
        frame = pd.DataFrame({column: _values(table, column, schema) for column in self.columns})
        named = hasattr(self.estimator, "feature_names_in_")
        try:
            rows = frame if named else frame.to_numpy()
            if schema.target.is_quantity or not hasattr(self.estimator, "predict_proba"):
                given = np.asarray(self.estimator.predict(rows))
            else:
                own = tuple(map(str, self.estimator.classes_))
                given = np.asarray(self.estimator.predict_proba(rows), np.float64)
                return checked_predictions(given, own, schema.target, self.name)
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, InputError):
                raise
            raise _not_applied(self.name, table, error) from error
        if schema.target.is_quantity:
            return checked_predictions(given.astype(np.float64), (), schema.target, self.name)
        return from_labels(given, schema.target, self.name)


GivenModel: TypeAlias = PredictionColumns | TrainedRun | OnnxModel | SkopsModel


def _read_onnx(path: Path, columns: Sequence[str]) -> OnnxModel:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # The same sums in the same order on every computer.
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options)
    except (
        *(runtime.Fail, runtime.InvalidArgument, runtime.InvalidGraph, runtime.InvalidProtobuf),
        *(runtime.NotImplemented, runtime.RuntimeException),
    ) as error:
        raise InputError(f"{path} cannot be read as ONNX ({_first_line(error)}); {ADVICE}") from (
            error
        )
    inputs = session.get_inputs()
    for own in inputs:
        if own.type != TEXT and own.type not in NUMBERS:
            raise InputError(f"{path}: input '{own.name}' is {own.type}, no column; {ADVICE}")
    about = session.get_modelmeta().custom_metadata_map
    kinds = {
        column: Kind.DATE if words.startswith("days") else Kind.BOOLEAN
        for column, words in _listed(about, "inputs", {}).items()
        if words.startswith(("days", "0 or 1"))
    }
    names = tuple(own.name for own in inputs)
    width = inputs[0].shape[1] if len(inputs) == 1 and len(inputs[0].shape) == 2 else 1
    if len(inputs) == 1 and (width != 1 or columns):
        names = tuple(columns) or tuple(_listed(about, "feature_names", ()))
        if not names:
            raise InputError(
                f"{path} has one input of {width} columns without their names; give them in the "
                "order of training with --columns"
            )
        if isinstance(width, int) and width != len(names):
            raise InputError(
                f"{path} has an input of {width} columns, and {len(names)} are named; give "
                f"{width} with --columns"
            )
        if inputs[0].type == TEXT:
            raise InputError(f"{path} has one input of texts; give a model of numbers")
    elif columns:
        raise InputError(f"{path} names its own columns, {quoted(names)}; leave out --columns")
    classes = tuple(map(str, _listed(about, "classes", ())))
    return OnnxModel(path.name, session, names, kinds, classes)


def _read_skops(path: Path, columns: Sequence[str]) -> SkopsModel:
    import sklearn  # noqa: F401 - without it the error would name a part of it
    from skops import io
    from skops.io.exceptions import UnsupportedTypeException

    try:
        unknown = io.get_untrusted_types(file=path)
        if unknown:
            raise InputError(
                f"{path} has types that skops does not trust ({quoted(unknown)}); convert the "
                "model to ONNX, or give predictions as a column with --predictions"
            )
        estimator = io.load(path, trusted=[])
    except (KeyError, TypeError, AttributeError, UnsupportedTypeException) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}); {ADVICE}") from error
    names = tuple(columns) or tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    if not names:
        raise InputError(
            f"{path} does not name its columns; give them in the order of training with --columns"
        )
    return SkopsModel(path.name, estimator, names)


def _values(table: FileTable, column: str, schema: Schema) -> NDArray[Any]:
    """Return a column as numbers if all values are, otherwise as texts."""
    try:
        return _numbers(table, column, schema)
    except InputError:
        texts = text_of(table.frame[column], schema.missing_values).to_list()
        return np.array([np.nan if text is None else text for text in texts], object)


def _numbers(
    table: FileTable, column: str, schema: Schema, kind: Kind | None = None
) -> NDArray[np.float64]:
    table.require([column], "which has numbers")
    texts = text_of(table.frame[column], schema.missing_values).drop_nulls().unique().to_list()
    words = {text.lower() for text in texts}
    is_boolean = bool(words) and words <= BOOLEANS.keys()
    own = kind or (Kind.BOOLEAN if is_boolean else Kind.NUMERIC)
    return parse_numbers(table, Column(column, own, "correct it"), schema.missing_values)


def _cast(values: NDArray[np.float64], dtype: Any, name: str) -> NDArray[Any]:
    if dtype not in (np.float32, np.float64) and np.isnan(values).any():
        raise InputError(f"{name} takes whole numbers, and some are missing; fill them in")
    return values.astype(dtype)


def _listed(about: Mapping[str, str], key: str, otherwise: Any) -> Any:
    try:
        return json.loads(about[key])
    except (KeyError, ValueError):
        return otherwise


def _not_applied(name: str, table: FileTable, error: Exception) -> InputError:
    return InputError(
        f"{name} cannot be applied to {table.title} ({_first_line(error)}); give the columns that "
        "it was trained on"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
