"""Tensors by name in a file of a run between sites: written in full, and read with care."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write these tensors."""
    write_bytes(path, save(dict(tensors)))


def read_tensors(path: Path, names: Sequence[str]) -> list[Tensor]:
    """Read the tensors of these names."""
    try:
        found = load_file(path)
        return [found[name] for name in names]
    except (SafetensorError, KeyError, FileNotFoundError) as error:
        raise InputError(
            f"{path} is missing or damaged; resume the run, which brings it again"
        ) from error
