"""Streams are functions of (seed, purpose, round, site) and of nothing else."""

from itertools import product

import numpy as np
import torch

from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed, torch_stream


def test_the_same_four_numbers_give_the_same_draws_whatever_happened_between() -> None:
    first = torch.rand(5, generator=torch_stream(3, Purpose.LOCAL_WORK, 2, 7))
    torch_stream(99, Purpose.DATA)
    torch.manual_seed(12)
    second = torch.rand(5, generator=torch_stream(3, Purpose.LOCAL_WORK, 2, 7))
    assert torch.equal(first, second)


def test_numpy_streams_are_repeatable_too() -> None:
    first = numpy_stream(3, Purpose.DATA, 2, 7).random(5)
    np.random.default_rng(1).random(3)
    assert (numpy_stream(3, Purpose.DATA, 2, 7).random(5) == first).all()


def test_no_two_streams_share_a_seed() -> None:
    """Also not when the numbers are swapped, or when one of them moves into the next."""
    seeds = [
        stream_seed(seed, purpose, number, site)
        for seed, purpose, number, site in product(range(5), Purpose, range(5), range(5))
    ]
    assert len(set(seeds)) == 5 * len(Purpose) * 5 * 5


def test_seeds_of_more_than_32_bits_stay_apart() -> None:
    seeds = [2**32 * high + low for high, low in product(range(4), range(4))]
    assert len({stream_seed(seed, Purpose.DATA) for seed in seeds}) == 16


def test_seeds_fit_into_63_bits_and_use_them() -> None:
    seeds = [stream_seed(seed, Purpose.DATA) for seed in range(64)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) >= 2**62


def test_streams_of_two_sites_are_uncorrelated() -> None:
    """Correlation of 4000 independent pairs has standard deviation 1/sqrt(4000) = .016."""
    a, b = (numpy_stream(0, Purpose.LOCAL_WORK, 1, site).random(4000) for site in (0, 1))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(4000)


def test_making_and_using_a_stream_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=torch_stream(0, Purpose.DATA))
    torch.randperm(9, generator=torch_stream(0, Purpose.LOCAL_WORK))
    assert torch.equal(torch.get_rng_state(), before)
