"""Parse bytes as vectors: the size is checked before they are read, the type before use."""

from collections.abc import Mapping, Sequence

import torch
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.messages import all_finite

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
