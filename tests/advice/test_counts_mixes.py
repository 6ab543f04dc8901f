"""Lemma 1's P_A Delta: is a mix of groups within the hull, and how far is it? Against scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls
from torch import Tensor

from fedminmax.advice.counts import mixes_of, nearest_mix

Array = NDArray[np.float64]


@st.composite
def tables(draw: st.DrawFn) -> Tensor:
    """Counts of up to 8 sites and 5 groups, at least one site with rows, some alike."""
    groups = draw(st.integers(1, 5))
    line = st.lists(st.sampled_from([0, 0, 1, 2, 7, 1000]), min_size=groups, max_size=groups)
    lines = draw(st.lists(line, min_size=1, max_size=8))
    lines[0][draw(st.integers(0, groups - 1))] += 1
    return torch.tensor(lines)


def is_mean_of(mixes: Array, target: Array) -> bool:
    """Tell by a linear programme whether some weights over sites give exactly this mix."""
    equations = np.vstack([mixes.T, np.ones(len(mixes))])
    solved = linprog(np.zeros(len(mixes)), A_eq=equations, b_eq=np.append(target, 1.0))
    return bool(solved.status == 0)


def distance_by_nnls(mixes: Array, target: Array) -> float:
    """Least squares over weights >= 0; their sum is 1 by an equation that outweighs all others."""
    heavy = 1e4
    equations = np.vstack([mixes.T, np.full(len(mixes), heavy)])
    weights, _ = nnls(equations, np.append(target, heavy))
    return float(np.linalg.norm(weights / weights.sum() @ mixes - target))


@settings(max_examples=60)
@given(tables(), st.integers(0, 2**32 - 1))
def test_membership_and_distance_agree_with_scipy(counts: Tensor, seed: int) -> None:
    mixes, random = mixes_of(counts), np.random.default_rng(seed)
    targets = [
        random.dirichlet(np.full(counts.shape[1], 0.5)),
        random.dirichlet(np.full(len(mixes), 0.5)) @ mixes.numpy(),
        np.eye(counts.shape[1])[random.integers(counts.shape[1])],
    ]
    for target in targets:
        found = nearest_mix(mixes, torch.from_numpy(target))
        assert found.distance == pytest.approx(distance_by_nnls(mixes.numpy(), target), abs=1e-8)
        assert found.is_reached == is_mean_of(mixes.numpy(), target)
        # What is called the nearest mix is one, and is as far as it is said to be.
        assert nearest_mix(mixes, found.mix).is_reached
        gap = torch.linalg.vector_norm(found.mix - torch.from_numpy(target))
        assert float(gap) == pytest.approx(found.distance, abs=1e-12)


def test_a_thousand_sites_of_twenty_groups() -> None:
    counts = torch.from_numpy(np.random.default_rng(0).poisson(5.0, (1000, 20)))
    mixes = mixes_of(counts)
    for corner in torch.eye(20, dtype=torch.float64):
        found = nearest_mix(mixes, corner)
        # No mix lies farther on the corner's side of the nearest one: that proves it.
        side = corner - found.mix
        assert float((mixes @ side).max()) <= float(found.mix @ side) + 1e-12
