"""Randomness as a function of (seed, purpose, round, holder), never of global state or order.

numpy's SeedSequence mixes the four numbers into independent streams, so that holder 7 shuffles
alike whether it runs first or last, here or on another machine, now or after a resume.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What a stream is for: two purposes never share their draws."""

    INITIALISATION = 0
    DATA = 1
    PARTITION = 2
    PARTICIPATION = 3
    LOCAL_WORK = 4
    FOLDS = 5
    DROPOUT = 6
    SECOND_QUESTION = 7
    SERVER_DRAWS = 8


def stream_seed(seed: int, purpose: Purpose, round_number: int = 0, holder: int = 0) -> int:
    """Mix the four numbers into one 63-bit seed."""
    sequence = np.random.SeedSequence([seed, int(purpose), round_number, holder])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_stream(
    seed: int, purpose: Purpose, round_number: int = 0, holder: int = 0
) -> torch.Generator:
    """Return a torch generator for this purpose, round and holder."""
    generator = torch.Generator()
    generator.manual_seed(stream_seed(seed, purpose, round_number, holder))
    return generator


def numpy_stream(
    seed: int, purpose: Purpose, round_number: int = 0, holder: int = 0
) -> np.random.Generator:
    """Return a numpy generator for this purpose, round and holder."""
    return np.random.default_rng(stream_seed(seed, purpose, round_number, holder))


@contextmanager
def torch_seeded(
    seed: int, purpose: Purpose, round_number: int = 0, holder: int = 0
) -> Iterator[None]:
    """Set torch's global random state inside the block and put the old one back after it.

    For code that draws from nowhere else: a module's initialisation, dropout.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, purpose, round_number, holder))
        yield
