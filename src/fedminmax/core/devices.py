"""Devices by name: cpu, cuda, cuda:1, mps and whatever else torch knows here."""

import torch

from fedminmax.core.errors import InputError


def usable_device(name: str) -> torch.device:
    """Return the device of this name, or say that there is none.

    >>> usable_device("cpu").type
    'cpu'
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name} cannot be used here; give cpu") from error
