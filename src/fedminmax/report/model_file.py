"""A saved model on disk: one safetensors file with parameters, encoding and groups.

No code is run by reading it, and other programs can read it without fedminmax.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes
from fedminmax.core.mixture import Mixture, as_one_model
from fedminmax.core.models import linear_or_mlp
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.data.tables.file_format import FileFormat
from fedminmax.report.saved_model import SavedModel

FORMAT = "1"
FILE_NAME = "model.safetensors"
LENGTH_BYTES = 8


def save_model(path: Path, saved: SavedModel) -> None:
    """Write the model; the file is there in full or not at all."""
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
    """Sort what safetensors leaves to chance, so that equal models are equal files.

    The format is eight bytes with the length of a JSON header, the header, which spaces fill up
    to a multiple of eight, and the numbers.
    """
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.dumps(json.loads(content[LENGTH_BYTES:start]), sort_keys=True).encode()
    header += b" " * (-len(header) % LENGTH_BYTES)
    return len(header).to_bytes(LENGTH_BYTES, "little") + header + content[start:]


def load_model(source: str | Path) -> SavedModel:
    """Load what `fedminmax train` left: give its run folder, or the model file itself."""
    if not isinstance(source, (str, Path)):
        raise InputError(f"got {source!r}; give the folder of a finished 'fedminmax train'")
    path = Path(source)
    path = path / FILE_NAME if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the folder of a finished 'fedminmax train'")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    except SafetensorError as error:
        raise InputError(f"{path} is no model file or is damaged; train anew") from error
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "none")
        raise InputError(
            f"{path} has format {found}, this version reads format {FORMAT}; use the version of "
            "fedminmax that wrote it, or train anew"
        )
    try:
        return _loaded(metadata, tensors, str(path))
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is damaged ({reason}); train anew") from error


def _loaded(metadata: dict[str, str], tensors: dict[str, Tensor], source: str) -> SavedModel:
    encoding = encoding_from_json(metadata["encoding"], source)
    hidden = tuple(json.loads(metadata["hidden"]))
    members = int(metadata["members"])
    if not 1 <= members <= max(1, len(tensors)):
        raise ValueError(f"{members} members with {len(tensors)} tensors")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not tensor.isfinite().all():
            raise ValueError(f"{name} is not all finite numbers of 32 bits")
    models = [_member(encoding, hidden, tensors, _prefix(n, members)) for n in range(members)]
    return SavedModel(
        as_one_model(models, classifies=encoding.outputs > 1),
        encoding,
        metadata["model"],
        hidden,
        members,
        metadata["loss"],
        metadata["iterate"],
        # Models of older versions have a delimiter alone.
        FileFormat(**json.loads(metadata["file_format"]))
        if "file_format" in metadata
        else FileFormat(metadata["delimiter"]),
    )


def _member(
    encoding: Encoding, hidden: tuple[int, ...], tensors: dict[str, Tensor], prefix: str
) -> nn.Module:
    # Without memory: what a damaged file says of its sizes must not be believed before it is seen.
    with torch.device("meta"):
        model = linear_or_mlp(len(encoding.names), encoding.outputs, hidden)
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
