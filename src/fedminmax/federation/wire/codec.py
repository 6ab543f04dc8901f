"""Bytes into vectors: refused by size before they are read, and by kind before they are used."""

from collections.abc import Mapping, Sequence

import torch
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.messages import all_finite

# Some methods send a line of weights for each of several purposes.
TABLES = ("weights",)


class RefusedError(InputError):
    """What came over the network does not fit: one line with its sender and the reason."""


def checked_bytes(message: object, limit: int, sender: str) -> bytes:
    """Refuse what is not bytes, or too many of them."""
    if not isinstance(message, bytes):
        raise RefusedError(f"{sender} sent {type(message).__name__}, expected bytes; refused")
    if len(message) > limit:
        raise RefusedError(
            f"{sender} sent {len(message):,} bytes, at most {limit:,} fit this model; refused"
        )
    return message


def check_finite(vector: Tensor, name: str, sender: str) -> None:
    """Refuse NaN and infinity."""
    if not all_finite(vector):
        raise RefusedError(f"{sender} sent a {name} with NaN or infinity; refused")


def write_vectors(vectors: Mapping[str, Tensor]) -> bytes:
    """Write vectors under their names."""
    # The library's own way to write tensors takes four times as long for short ones.
    return save({name: own.detach().cpu().contiguous().numpy() for name, own in vectors.items()})


def read_vectors(
    message: object, kinds: Mapping[str, Sequence[torch.dtype]], limit: int, sender: str
) -> dict[str, Tensor]:
    """Read exactly these vectors, each of one of its types."""
    content = checked_bytes(message, limit, sender)
    try:
        vectors = load(content)
    # What damaged bytes end in is not the same in all versions of the library.
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        AssertionError,
    ) as error:
        raise RefusedError(f"{sender} sent bytes that are no message; refused") from error
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
