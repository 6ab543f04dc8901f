"""The lower bound: of any weights, beside a solver from outside, and in spite of rounding."""

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedminmax.core.certificate import Certificate, Errors, bound_of, lower_bound, tangents_at
from fedminmax.core.losses import Loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.certify import certify
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.oracles import lowest_maximum
from tests.problems import Vector

NO_ERRORS = Errors(0.0, 0.0)


def test_any_weights_of_any_points_prove_a_bound_and_the_best_ones_a_tight_one() -> None:
    """r_a = |theta - c_a|^2 + b_a + m/2 |theta|^2; the optimum is SLSQP's."""
    rng = np.random.default_rng(0)
    centres, heights, ridge = rng.normal(size=(4, 3)), rng.uniform(size=4), 0.3

    def risks(theta: Vector) -> tuple[Vector, Vector]:
        values = ((theta - centres) ** 2).sum(axis=1) + heights + 0.5 * ridge * theta @ theta
        return values, 2.0 * (theta - centres) + ridge * theta

    best = lowest_maximum(risks, np.zeros(3))
    points = rng.normal(size=(6, 3))
    pieces = []
    for point in points:
        values, slopes = map(torch.from_numpy, risks(point))
        pieces.append(
            tangents_at(torch.from_numpy(point), values, slopes, ridge=ridge, errors=NO_ERRORS)
        )
    cuts = reduce(lambda earlier, new: new.after(earlier, 6), pieces).cuts(best, ridge)
    chosen = lower_bound(cuts, ridge)
    assert chosen <= best
    for seed in range(200):
        alpha = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(24, 0.1)))
        assert bound_of(cuts, alpha, ridge) <= chosen + 1e-9
    worst = max(float(risks(point)[0].max()) for point in points)
    assert chosen > best - (worst - best)


def test_the_one_round_bound_is_that_of_a_strongly_convex_function() -> None:
    """One group: f(theta) - |grad f(theta)|^2 / (2 m), by hand."""
    point = torch.tensor([1.0, 2.0], dtype=torch.float64)
    risk = torch.tensor([3.0], dtype=torch.float64)
    slope = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    cuts = tangents_at(point, risk, slope, ridge=0.8, errors=NO_ERRORS).cuts(3.0, 0.8)
    assert lower_bound(cuts, 0.8) == pytest.approx(3.0 - (0.25 + 1.0) / 1.6, rel=1e-12)


def test_any_model_can_be_held_against_the_best() -> None:
    """r_0 = theta^2, r_1 = (theta - 1)^2 and m/2 theta^2 with m = 0.1: 0.2625 at 1/2, by hand."""
    rows = (
        torch.ones(2, 1, dtype=torch.float64),
        torch.tensor([0.0, 1.0], dtype=torch.float64),
        torch.tensor([0, 1]),
    )
    model = nn.Linear(1, 1, bias=False).double()
    federation = Simulation(model, squared_error_loss, [rows], ridge=0.1)
    proved = certify(federation, torch.ones(1, dtype=torch.float64))
    assert (proved.upper, proved.penalty) == pytest.approx((1.05, 0.05), rel=1e-12)
    assert proved.lower == pytest.approx(0.2625, rel=1e-9)


def test_groups_too_small_to_play_for_count_by_their_share_in_a_model_of_any_method() -> None:
    """The two rows of group 2 are wrong whatever the model: they must not be its worst group."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(82, 2)))
    y = (x[:, 0] > 0).long()
    y[80:] = 1 - y[80:]
    group = torch.tensor([0] * 40 + [1] * 40 + [2] * 2)
    model = nn.Linear(2, 2).double()
    federation = Simulation(model, cross_entropy_loss, [(x, y, group)], ridge=0.1, minimum_group=30)
    *_, last = train(federation, FedMinMaxFast(), rounds=30)
    assert last.certificate is not None
    again = certify(federation, last.members[0])
    assert again.upper == pytest.approx(last.certificate.upper, rel=1e-9)
    assert again.gap < 2e-4


@pytest.mark.parametrize("seed", range(4))
def test_a_model_in_single_precision_is_certified_as_it_is(seed: int) -> None:
    """With a common shift of all outputs; its penalised risks are computed here in float64."""
    rng = np.random.default_rng(seed)
    x, y = torch.from_numpy(rng.normal(size=(90, 3))).float(), torch.arange(90) % 3
    group = torch.from_numpy(rng.integers(0, 2, 90))
    torch.manual_seed(seed)
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.add_(3.7 * torch.randn(1, 3))
        model.bias.add_(2.9)
    theta = torch.cat([model.weight.flatten(), model.bias]).detach()
    federation = Simulation(model, cross_entropy_loss, [(x, y, group)], ridge=1e-2)
    with torch.no_grad():
        losses = cross_entropy_loss(federation.model(theta).double()(x.double()), y)
    risks = [float(losses[group == number].mean()) for number in (0, 1)]
    penalty = 0.5e-2 * float(theta.double() @ theta.double())
    proved = certify(federation, theta)
    assert proved.upper == pytest.approx(max(risks) + penalty, rel=1e-12)
    assert proved.penalty == pytest.approx(penalty, rel=1e-12)


def test_what_is_proved_without_the_penalty_is_as_far_apart() -> None:
    proved = Certificate(upper=0.45, lower=0.44, penalty=0.05, ridge=1e-4)
    assert proved.risk - proved.min_risk == pytest.approx(0.01)
    assert proved.gap == pytest.approx(0.01 / 0.45)
    assert proved.in_units(100.0).gap == pytest.approx(proved.gap)


def proved_by(loss: Loss, x: Vector, y: Vector, ridge: float, start: float) -> list[Certificate]:
    """The certificates of some rounds of one group and one parameter per output."""
    outputs = 1 if loss is squared_error_loss else 2
    model = nn.Linear(1, outputs, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(start * torch.linspace(-1.0, 1.0, outputs)[:, None])
    rows = (torch.from_numpy(x)[:, None], torch.from_numpy(y), torch.zeros(len(x)).long())
    federation = Simulation(model, loss, [rows], ridge=ridge)
    rounds = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=6)
    found = [done.certificate for done in rounds]
    assert None not in found
    return [own for own in found if own is not None]


sizes = st.integers(-6, 6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), size_x=sizes, size_y=sizes, size_m=st.integers(-8, 2))
def test_rounding_never_makes_it_false(seed: int, size_x: int, size_y: int, size_m: int) -> None:
    """Least squares of one parameter in exact fractions: B - A^2 / (4 (C + m/2)).

    A = mean 2 x y, B = mean y^2, C = mean x^2.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=37) * 10.0**size_x, rng.normal(size=37) * 10.0**size_y
    ridge = 10.0**size_m
    exact = [(Fraction(own), Fraction(target)) for own, target in zip(x, y, strict=True)]
    a = sum(2 * own * target for own, target in exact) / 37
    b, c = (sum(pair[place] ** 2 for pair in exact) / 37 for place in (1, 0))
    best = b - a * a / (4 * (c + Fraction(ridge) / 2))
    for own in proved_by(squared_error_loss, x, y, ridge, start=0.0):
        assert Fraction(own.lower) <= best <= Fraction(own.upper)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), size=sizes, size_m=st.integers(-6, 0))
def test_rounding_never_makes_it_false_for_a_softmax(seed: int, size: int, size_m: int) -> None:
    """Every x with both labels: zeros are best by symmetry, and their risk is log 2."""
    half = np.random.default_rng(seed).normal(size=20) * 10.0**size
    labels = np.r_[np.zeros(20), np.ones(20)].astype(np.int64)
    found = proved_by(cross_entropy_loss, np.r_[half, half], labels, 10.0**size_m, start=0.3)
    rounding = math.ulp(math.log(2.0))
    assert all(own.lower <= math.log(2.0) + rounding for own in found)
    assert all(own.upper >= math.log(2.0) - rounding for own in found)
    assert found[-1].gap < 1e-3


@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
def test_a_model_too_wide_for_second_derivatives_has_the_one_round_bound(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It brackets the optimum at any model, in single precision too, and is close at the best."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.normal(size=(90, 4))).float()
    group = torch.arange(90) % 3
    noise = torch.from_numpy(rng.normal(size=90)).float()
    y = x[:, 0] * (group - 1) + noise
    outputs = 1 if loss is squared_error_loss else 2
    rows = (x, y if outputs == 1 else (y > 0).long(), group)
    federation = Simulation(nn.Linear(4, outputs), loss, [rows], ridge=0.1)
    *_, last = train(federation, FedMinMaxFast(optimality_gap=1e-9), rounds=40)
    best, answer = last.certificate, last.members[0]
    assert best is not None
    monkeypatch.setattr("fedminmax.methods.shared.second_order_state.MAX_CURVATURE", 0)
    generator = torch.Generator().manual_seed(0)
    for distance in (0.0, 1e-3, 1e-2, 0.1, 1.0):
        step = distance * torch.randn(len(answer), generator=generator)
        found = certify(federation, answer + step)
        assert 0.0 <= found.lower <= best.upper
        assert found.upper >= best.lower
        assert found.gap < (1e-5 if distance == 0.0 else 1.01)


@pytest.mark.parametrize("max_curvature", [None, 10])
def test_a_common_shift_of_all_outputs_is_part_of_the_penalty(
    max_curvature: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is about models at most as long as this one, and the shift makes it longer."""
    if max_curvature is not None:
        monkeypatch.setattr(
            "fedminmax.methods.shared.second_order_state.MAX_CURVATURE", max_curvature
        )
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(300, 3)))
    y = torch.from_numpy((rng.random(300) < 1 / (1 + np.exp(-2 * x[:, 0].numpy()))).astype(int))
    rows = (x, y, torch.from_numpy(rng.integers(0, 2, 300)))
    federation = Simulation(nn.Linear(3, 2).double(), cross_entropy_loss, [rows], ridge=0.05)
    centred = torch.tensor([1.0, 0.2, 0.0, -1.0, -0.2, 0.0, 0.1, -0.1], dtype=torch.float64)
    plain, shifted = certify(federation, centred), certify(federation, centred + 0.3)
    more = 0.5 * 0.05 * 8 * 0.3**2
    assert shifted.penalty == pytest.approx(
        0.025 * float((centred + 0.3).square().sum()), rel=1e-12
    )
    assert shifted.upper == pytest.approx(plain.upper + more, rel=1e-9)
    assert shifted.lower == pytest.approx(plain.lower, rel=1e-6)
    assert shifted.min_risk < plain.min_risk - 0.9 * more
