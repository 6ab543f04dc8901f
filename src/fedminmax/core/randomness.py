"""Randomness as a function of (seed, purpose, round, site), never of global state or order.

numpy's SeedSequence mixes the four numbers into independent streams, so site 7 shuffles the same
way whether it runs first or last, here or on another machine, now or after a resume.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from threading import RLock

import numpy as np
import torch

# The global random states belong to the process: one thread at a time may set them.
_GLOBAL_STATES = RLock()


class Purpose(IntEnum):
    """What a stream is for: two purposes never share their draws."""

    INITIALISATION = 0
    DATA = 1
    PARTITION = 2
    PARTICIPATION = 3
    LOCAL_WORK = 4
    FOLDS = 5
    DROPOUT = 6
    SECOND_REQUEST = 7
    SERVER_DRAWS = 8
    VALIDATION = 9
    OWN_MODELS = 10


def stream_seed(seed: int, purpose: Purpose, round_number: int = 0, site: int = 0) -> int:
    """Mix the four numbers into one 63-bit seed."""
    sequence = np.random.SeedSequence([seed, int(purpose), round_number, site])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_stream(
    seed: int, purpose: Purpose, round_number: int = 0, site: int = 0
) -> torch.Generator:
    """Return a torch generator for this purpose, round and site."""
    generator = torch.Generator()
    generator.manual_seed(stream_seed(seed, purpose, round_number, site))
    return generator


def numpy_stream(
    seed: int, purpose: Purpose, round_number: int = 0, site: int = 0
) -> np.random.Generator:
    """Return a numpy generator for this purpose, round and site."""
    return np.random.default_rng(stream_seed(seed, purpose, round_number, site))


@contextmanager
def torch_seeded(
    seed: int, purpose: Purpose, round_number: int = 0, site: int = 0
) -> Iterator[None]:
    """Set torch's global random state inside the block and restore it afterwards.

    For code that draws only from torch: a module's initialisation.
    """
    own = stream_seed(seed, purpose, round_number, site)
    with _GLOBAL_STATES, torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(own)
        else:  # which would write down the call stack for each kind of device that is not there
            torch.default_generator.manual_seed(own)
        yield


@contextmanager
def globally_seeded(
    seed: int, purpose: Purpose, round_number: int = 0, site: int = 0
) -> Iterator[None]:
    """Set torch's, numpy's and Python's global random states inside the block; then restore them.

    For models and losses, which may draw from any of them. Torch's draws are as in torch_seeded.
    """
    own = stream_seed(seed, purpose, round_number, site)
    with torch_seeded(seed, purpose, round_number, site):
        of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002
        try:
            np.random.seed([own >> 32, own & 0xFFFFFFFF])  # noqa: NPY002
            random.seed(own)
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)


def global_states() -> tuple[object, ...]:
    """Return the states of the three global generators as comparable values."""
    of_numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    place = (of_numpy["pos"], of_numpy["key"].tolist())
    return torch.get_rng_state().tolist(), place, random.getstate()
