"""Parse bytes as vectors, or as records of JSON: the size is checked first, the type before use."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.messages import all_finite

RecordT = TypeVar("RecordT")

# Some methods send a row of weights for each of several purposes.
TABLES = ("weights",)


class RefusedError(InputError):
    """An invalid message from the network: one line with its sender and the reason."""


def checked_bytes(message: object, limit: int, sender: str) -> bytes:
    """Refuse a message that is not bytes, or too long."""
    if not isinstance(message, bytes):
        raise RefusedError(f"{sender} sent {type(message).__name__}, expected bytes; refused")
    if len(message) > limit:
        raise RefusedError(
            f"{sender} sent {len(message):,} bytes, at most {limit:,} fit this model; refused"
        )
    return message


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return what converts records of a kind; creating it takes longer than using it."""
    return TypeAdapter(kind)


def record_to_bytes(record: object, kind: Any = None) -> bytes:
    """Write a record as JSON; its ``kind`` is its class, unless it has none of its own."""
    chosen: Any = kind or type(record)
    return adapter_of(chosen).dump_json(record)


def record_from_bytes(message: object, kind: Any, limit: int, sender: str, what: str) -> Any:
    """Read a record of this kind; refuse anything else than ``what`` it should be."""
    content = checked_bytes(message, limit, sender)
    try:
        return adapter_of(kind).validate_json(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:100] or "not JSON"
        raise RefusedError(f"{sender} sent no {what} ({where}); refused") from error


def check_finite(vector: Tensor, name: str, sender: str) -> None:
    """Refuse NaN and infinity."""
    if not all_finite(vector):
        raise RefusedError(f"{sender} sent a {name} with NaN or infinity; refused")


def write_vectors(vectors: Mapping[str, Tensor]) -> bytes:
    """Write vectors under their names."""
    # The library's own function for tensors takes four times as long for short ones.
    return save({name: own.detach().cpu().contiguous().numpy() for name, own in vectors.items()})


def read_vectors(
    message: object, kinds: Mapping[str, Sequence[torch.dtype]], limit: int, sender: str
) -> dict[str, Tensor]:
    """Read exactly these vectors, each of one of its types."""
    content = checked_bytes(message, limit, sender)
    try:
        vectors = load(content)
    # Damaged bytes raise different errors in different versions of the library.
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        AssertionError,
    ) as error:
        raise RefusedError(f"{sender} sent bytes that are not a message; refused") from error
    if vectors.keys() != kinds.keys():
        wrong = ", ".join(sorted(vectors.keys() ^ kinds.keys()))[:100]
        raise RefusedError(f"{sender} sent a message of another kind ({wrong}); refused")
    for name, kind in kinds.items():
        dimensions = (1, 2) if name in TABLES else (1,)
        if vectors[name].dtype not in kind or vectors[name].dim() not in dimensions:
            raise RefusedError(
                f"{sender} sent {name} as {vectors[name].dtype} of shape "
                f"{tuple(vectors[name].shape)}, expected a vector of {kind[0]}; refused"
            )
    return vectors


def check_length(vectors: Mapping[str, Tensor], name: str, length: int, sender: str) -> None:
    """Refuse a vector of another length."""
    came = len(vectors[name])
    if came != length:
        raise RefusedError(
            f"{sender} sent {name} with {came:,} numbers, expected {length:,}; refused"
        )


def read_record(path: Path, kind: type[RecordT], advice: str) -> RecordT | None:
    """Read a record from a file; None if there is no such file.

    Raises:
        InputError: the file is damaged; ``advice`` says what to do.
    """
    if not path.exists():
        return None
    try:
        reader: Any = kind
        record: RecordT = adapter_of(reader).validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path} is damaged; {advice}") from error
    return record


def write_record(path: Path, record: object) -> None:
    """Write a record to a file, in full or not at all."""
    kind: Any = type(record)
    content = adapter_of(kind).dump_json(record, indent=2).decode()
    write_text(path, content + "\n")
