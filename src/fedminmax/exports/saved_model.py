"""A trained model with its encoding: predictions from a table in one call, and its file on disk.

The file is in the safetensors format and has the parameters, the encoding and the groups. Reading
it runs no code, and other programs can read it without fedminmax.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedminmax.config.file_format import PLAIN, FileFormat
from fedminmax.config.sections import ModelSection
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes
from fedminmax.core.models import Mixture, single_model
from fedminmax.data.tables.encode import encode_features, model_for_predictions
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.data.tables.read_file import FileTable, table_from
from fedminmax.exports.effects import explain_codes
from fedminmax.metrics.sums import predictions

MODEL_FILE = "model.safetensors"
FORMAT = "1"
LENGTH_BYTES = 8


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The model that `fedminmax train` writes, for predictions.

    ``model`` is a torch module of encoded features; several ``members`` make it a mixture.
    """

    model: nn.Module
    encoding: Encoding
    _: KW_ONLY
    kind: str
    hidden: tuple[int, ...]
    members: int
    loss: str
    iterate: str
    format: FileFormat = PLAIN

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of probabilities; none for a quantity."""
        return self.encoding.schema.target.classes

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that training saw."""
        return self.encoding.group_names

    @property
    def small_group_numbers(self) -> tuple[int, ...]:
        """The numbers of the groups that had too few training rows to be trained for."""
        return tuple(map(self.encoding.groups.index, self.encoding.small_groups))

    def table(self, data: Any) -> FileTable:
        """Read a file, or take a data frame or a dict of columns."""
        return table_from(data, self.encoding.schema.feature_columns, self.format)

    def encode(self, data: Any) -> Tensor:
        """Return a table's encoded features [rows, features], in float32, or codes."""
        table = data if isinstance(data, FileTable) else self.table(data)
        return encode_features(parse_features(table, self.encoding.schema), self.encoding)

    def predict_proba(self, data: Any) -> NDArray[np.float64]:
        """Return each class's probability, in the order of ``classes``."""
        if not self.classes:
            raise InputError("the model predicts a quantity, not classes; use predict")
        return self.scores(self.encode(data))

    def predict(self, data: Any) -> NDArray[Any]:
        """Return each row's most probable class, or its quantity in the target's own unit."""
        return self.answers(self.scores(self.encode(data)))

    def scores(self, x: Tensor) -> NDArray[np.float64]:
        """Return probabilities [rows, classes], or quantities [rows], of encoded rows."""
        return predictions(self.model, x, self.encoding)

    def answers(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """Return the classes or quantities that these scores stand for."""
        if not self.classes:
            return scores
        classes: NDArray[Any] = np.array(self.classes)
        answers: NDArray[Any] = classes[scores.argmax(axis=1)]
        return answers

    def explain(self, data: Any) -> pl.DataFrame:
        """Return what pulls each row's score up and down, of an additive model.

        The score of two classes is the log-odds of the second, of a quantity the prediction; of
        more classes there is one each. It is the base score plus the effects, which are columns.
        """
        return explain_codes(self.model, self.encoding, self.encode(data))

    def answer_columns(self, scores: NDArray[np.float64]) -> pl.DataFrame:
        """Return what these scores predict and, for classes, each one's probability."""
        columns = {"predicted": pl.Series(self.answers(scores))}
        columns |= {
            f"probability of {name}": pl.Series(scores[:, number])
            for number, name in enumerate(self.classes)
        }
        return pl.DataFrame(columns)


def mixed_model(
    models: Sequence[nn.Module],
    encoding: Encoding,
    choice: ModelSection,
    iterate: str,
    file_format: FileFormat,
) -> SavedModel:
    """Return the mixture of these models, which ``iterate`` names, as it is saved."""
    used = [_for_predictions(model, encoding) for model in models]
    return SavedModel(
        single_model(used, classifies=encoding.outputs > 1),
        encoding,
        kind=choice.kind,
        hidden=choice.hidden,
        members=len(models),
        loss=choice.loss,
        iterate=iterate,
        format=file_format,
    )


def _for_predictions(model: nn.Module, encoding: Encoding) -> nn.Module:
    """Return an additive model with its effects as parameters; any other as it is."""
    if not isinstance(model, AdditiveModel):
        return model
    plain = model_for_predictions(encoding, ())
    plain.load_state_dict({"weight": model.effects.detach(), "bias": model.bias.detach()})
    return plain.eval()


def save_model(path: Path, saved: SavedModel) -> None:
    """Write the model; the file is written in full or not at all."""
    metadata = {
        "format": FORMAT,
        "model": saved.kind,
        "hidden": json.dumps(saved.hidden),
        "outputs": str(saved.encoding.outputs),
        "members": str(saved.members),
        "loss": saved.loss,
        "iterate": saved.iterate,
        "groups": json.dumps(saved.groups),
        "delimiter": saved.format.delimiter,
        "file_format": json.dumps(asdict(saved.format)),
        "encoding": encoding_as_json(saved.encoding),
    }
    write_bytes(path, _with_sorted_header(save(_named_tensors(saved), metadata)))


def _with_sorted_header(content: bytes) -> bytes:
    """Sort the header, whose order safetensors leaves to chance: equal models give equal files.

    The format is eight bytes with the length of a JSON header, the header, padded with spaces to a
    multiple of eight, and the numbers.
    """
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.dumps(json.loads(content[LENGTH_BYTES:start]), sort_keys=True).encode()
    header += b" " * (-len(header) % LENGTH_BYTES)
    return len(header).to_bytes(LENGTH_BYTES, "little") + header + content[start:]


def load_model(source: str | Path) -> SavedModel:
    """Load a model of `fedminmax train` from its run folder, or from the model file itself."""
    if not isinstance(source, (str, Path)):
        raise InputError(f"got {source!r}; give the folder of a finished 'fedminmax train'")
    path = Path(source)
    path = path / MODEL_FILE if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the folder of a finished 'fedminmax train'")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    except SafetensorError as error:
        raise InputError(f"{path} is not a model file or is damaged; train again") from error
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "none")
        raise InputError(
            f"{path} has format {found}, this version reads format {FORMAT}; use the version of "
            "fedminmax that wrote it, or train again"
        )
    try:
        return _loaded(metadata, tensors, str(path))
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is damaged ({reason}); train again") from error


def _loaded(metadata: dict[str, str], tensors: dict[str, Tensor], source: str) -> SavedModel:
    encoding = encoding_from_json(metadata["encoding"], source)
    hidden = tuple(json.loads(metadata["hidden"]))
    members = int(metadata["members"])
    if not 1 <= members <= max(1, len(tensors)):
        raise ValueError(f"{members} members with {len(tensors)} tensors")
    precision, bits = (torch.float64, 64) if encoding.is_additive else (torch.float32, 32)
    for name, tensor in tensors.items():
        if tensor.dtype != precision or not tensor.isfinite().all():
            raise ValueError(f"{name} has values that are not finite {bits}-bit numbers")
    models = [_member(encoding, hidden, tensors, _prefix(n, members)) for n in range(members)]
    return SavedModel(
        single_model(models, classifies=encoding.outputs > 1),
        encoding,
        kind=metadata["model"],
        hidden=hidden,
        members=members,
        loss=metadata["loss"],
        iterate=metadata["iterate"],
        format=FileFormat(**json.loads(metadata["file_format"])),
    )


def _member(
    encoding: Encoding, hidden: tuple[int, ...], tensors: dict[str, Tensor], prefix: str
) -> nn.Module:
    # On the meta device: a damaged file may claim any size, so allocate nothing for it. Encodings
    # of additive models have a limited number of codes, which are needed for predictions.
    with nullcontext() if encoding.is_additive else torch.device("meta"):
        model = model_for_predictions(encoding, hidden)
    own = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    model.load_state_dict(own, assign=True)
    return model.eval()


def _named_tensors(saved: SavedModel) -> dict[str, Tensor]:
    models = list(saved.model.members) if isinstance(saved.model, Mixture) else [saved.model]
    return {
        _prefix(number, len(models)) + name: tensor.contiguous()
        for number, model in enumerate(models)
        for name, tensor in model.state_dict().items()
    }


def _prefix(number: int, members: int) -> str:
    return "" if members == 1 else f"member.{number}."
