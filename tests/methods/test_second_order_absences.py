"""The fast servers when sites are missing, now and then or in every round."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.messages import RoundKey
from fedminmax.methods.look_ahead import AFLFast, FedMinMaxFast
from fedminmax.methods.shared.first_order_server import FirstOrderState
from fedminmax.methods.shared.second_order_state import new_trial
from fedminmax.methods.shared.servers import LookAheadState
from fedminmax.training.progress import run_round
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.methods.look_ahead_problems import classes, network, worst_risk

Rows = tuple[Tensor, Tensor, Tensor]
METHOD = FedMinMaxFast(optimality_gap=0.0)


def easy_and_hard_sites(seed: int = 3) -> tuple[list[Rows], Rows]:
    """Four sites; at the last one labels do not follow the features."""
    x, y, group = classes(seed, 3, 3, 2, rows=400)
    part = torch.arange(len(group)) % 4
    y = torch.where(part == 3, torch.arange(len(group)) // 4 % 2, y)
    own = [part == number for number in range(4)]
    return [(x[rows], y[rows], group[rows]) for rows in own], (x, y, group)


def state_after(
    federation: Simulation, rounds: Sequence[Sequence[int]], method: FedMinMaxFast = METHOD
) -> LookAheadState:
    """Return the state after rounds with these sites."""
    state = method.init(federation.initial_parameters, federation.census)
    for number, participants in enumerate(rounds, start=1):
        key = RoundKey(0, number)
        state = run_round(
            federation,
            method,
            state,
            kept=federation.initial_parameters[:0],
            key=key,
            participants=participants,
        ).state
    return state


EVERYBODY, WITHOUT_HARD = (0, 1, 2, 3), (0, 1, 2)


@pytest.mark.parametrize("absent", [{2}, {2, 3, 7}, {1}, {1, 2, 3, 4, 5, 6, 7}])
def test_after_an_absence_a_linear_model_is_proved_as_without_one(absent: set[int]) -> None:
    """On easier rows the risk is lower: nothing that is measured on all rows could beat it."""
    sites, _ = easy_and_hard_sites()
    federation = Simulation(nn.Linear(3, 2).double(), cross_entropy_loss, sites, ridge=1e-3)
    rounds = [WITHOUT_HARD if number in absent else EVERYBODY for number in range(1, 31)]
    never, now_and_then = (
        state_after(federation, each).certificate for each in ([EVERYBODY] * 20, rounds)
    )
    assert never is not None
    assert now_and_then is not None
    assert now_and_then.gap < 1e-6
    assert now_and_then.upper == pytest.approx(never.upper, rel=1e-6)


def test_after_an_absence_a_network_trains_on() -> None:
    sites, rows = easy_and_hard_sites()
    federation = Simulation(network(0), brier_loss, sites)
    rounds = [WITHOUT_HARD if number % 5 == 3 else EVERYBODY for number in range(1, 101)]
    start, never, now_and_then = (
        worst_risk(federation.model(parameters), brier_loss, rows)
        for parameters in (
            federation.initial_parameters,
            state_after(federation, [EVERYBODY] * 80).selected[0],
            state_after(federation, rounds).selected[0],
        )
    )
    assert now_and_then == pytest.approx(never, abs=0.02 * (start - never))


def test_a_candidate_is_sent_again_a_few_times_and_then_training_goes_on() -> None:
    sites, _ = easy_and_hard_sites()
    for model in (nn.Linear(3, 2).double(), network(0)):
        federation = Simulation(model, brier_loss, sites)
        started = [EVERYBODY] * 2
        sent = [
            state_after(federation, started + [WITHOUT_HARD] * missed).parameters
            for missed in range(6)
        ]
        assert all(torch.equal(again, sent[0]) for again in sent[1:4])
        assert not torch.equal(sent[4], sent[0])
        assert not torch.equal(sent[5], sent[4])


def test_after_a_lost_site_a_complete_round_is_the_new_baseline() -> None:
    """Its level is measured, not smoothed; the next absence does not hold up training again."""
    sites, rows = easy_and_hard_sites()
    federation = Simulation(network(0), brier_loss, sites)
    rounds = [EVERYBODY, *[WITHOUT_HARD] * 20, EVERYBODY]
    back = state_after(federation, rounds)
    assert isinstance(back, FirstOrderState)
    assert back.is_exact
    assert back.level == pytest.approx(
        worst_risk(federation.model(back.best), brier_loss, rows), rel=1e-9
    )
    again = state_after(federation, [*rounds, WITHOUT_HARD])
    assert not torch.equal(again.parameters, back.parameters)


@pytest.mark.parametrize("loss", [cross_entropy_loss, brier_loss])
@pytest.mark.parametrize("participation", [0.5, 0.25])
def test_with_changing_sites_a_linear_model_comes_near_the_optimum(
    loss: Loss, participation: float
) -> None:
    sites, rows = easy_and_hard_sites()
    federation = Simulation(nn.Linear(3, 2).double(), loss, sites, ridge=1e-3)
    *_, whole = train(federation, METHOD, rounds=20)
    *_, part = train(federation, METHOD, rounds=200, participation=participation)
    best, found = (
        worst_risk(federation.model(done.members[0]), loss, rows) for done in (whole, part)
    )
    assert found == pytest.approx(best, rel=0.02)


def test_with_changing_sites_squared_error_comes_near_the_optimum() -> None:
    sites, (x, y, group) = easy_and_hard_sites()
    sites = [(own, target.double(), groups) for own, target, groups in sites]
    federation = Simulation(nn.Linear(3, 1).double(), squared_error_loss, sites)
    *_, whole = train(federation, METHOD, rounds=2)
    *_, part = train(federation, METHOD, rounds=200, participation=0.5)
    best, found = (
        worst_risk(federation.model(done.members[0]), squared_error_loss, (x, y.double(), group))
        for done in (whole, part)
    )
    assert found == pytest.approx(best, rel=0.02)


def test_with_changing_sites_the_worst_site_comes_near_its_optimum() -> None:
    """A site is a player of AFL: in a round it is there with all of its rows, or not at all."""
    sites, _ = easy_and_hard_sites()
    federation = Simulation(nn.Linear(3, 2).double(), cross_entropy_loss, sites, ridge=1e-3)
    method = AFLFast(optimality_gap=0.0)
    *_, whole = train(federation, method, rounds=20)
    *_, part = train(federation, method, rounds=100, participation=0.5)

    def worst_site(parameters: Tensor) -> float:
        model = federation.model(parameters)
        with torch.no_grad():
            return max(float(cross_entropy_loss(model(x), y).mean()) for x, y, _ in sites)

    best, found = (worst_site(done.members[0]) for done in (whole, part))
    assert found == pytest.approx(best, rel=1e-3)


def test_a_start_far_off_does_not_spoil_the_averages() -> None:
    sites, rows = easy_and_hard_sites()
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.mul_(1e4)
    federation = Simulation(model, cross_entropy_loss, sites, ridge=1e-3)
    *_, whole = train(federation, METHOD, rounds=20)
    *_, part = train(federation, METHOD, rounds=200, participation=0.5)
    best, found = (
        worst_risk(federation.model(done.members[0]), cross_entropy_loss, rows)
        for done in (whole, part)
    )
    assert found == pytest.approx(best, rel=0.02)


def unlike_sites(seed: int, spread: float) -> list[Rows]:
    """Ten sites with patterns and features of their own, three groups."""
    rng = np.random.default_rng(seed)
    common, sites = rng.normal(size=(3, 5)), []
    for _ in range(10):
        rows = int(rng.integers(10, 80))
        group = rng.choice(3, rows, p=rng.dirichlet(np.full(3, 0.5)))
        x = rng.normal(size=(rows, 5)) + spread * rng.normal(size=5)
        pattern = common + spread * rng.normal(size=(3, 5))
        y = ((x * pattern[group]).sum(axis=1) + 0.5 * rng.logistic(size=rows) > 0).astype(np.int64)
        sites.append((torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)))
    return sites


def worst_after(
    loss: Loss, sites: list[Rows], *, seed: int, participation: float, rounds: int
) -> float:
    """Return the worst group's risk over all rows, as a share of that of a model of zeros."""
    nothing = math.log(2.0) if loss is cross_entropy_loss else 0.5
    model = nn.Linear(5, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    federation = Simulation(model, loss, sites)
    *_, last = train(federation, METHOD, rounds=rounds, participation=participation, seed=seed)
    x, y, group = (torch.cat([own[part] for own in sites]) for part in range(3))
    return worst_risk(federation.model(last.members[0]), loss, (x, y, group)) / nothing


@pytest.mark.parametrize("loss", [cross_entropy_loss, brier_loss])
@pytest.mark.parametrize(("participation", "rounds"), [(0.1, 5), (0.3, 5), (0.3, 12)])
def test_a_few_sites_in_a_round_do_not_end_above_the_start(
    loss: Loss, participation: float, rounds: int
) -> None:
    """A model of zeros has the same risk in every group."""
    for seed in range(12):
        sites = unlike_sites(seed, 2.0)
        worst = worst_after(loss, sites, seed=seed, participation=participation, rounds=rounds)
        assert worst < 1.0 + 1e-9


@pytest.mark.parametrize("loss", [cross_entropy_loss, brier_loss])
@pytest.mark.parametrize(
    ("seed", "spread", "participation", "rounds"),
    [(3, 0.3, 0.1, 40), (6, 0.3, 0.6, 5), (7, 1.0, 0.6, 5), (0, 2.0, 0.6, 5), (7, 2.0, 0.6, 5)],
)
def test_candidates_that_did_well_on_average_do_not_end_above_the_start(
    loss: Loss, seed: int, spread: float, participation: float, rounds: int
) -> None:
    """The last of these candidates alone is worse than zeros: up to 1.09 times their risk."""
    sites = unlike_sites(seed, spread)
    worst = worst_after(loss, sites, seed=seed, participation=participation, rounds=rounds)
    assert worst < 1.0 + 1e-9


def test_a_model_that_was_measured_on_all_rows_is_kept_until_others_are_better() -> None:
    """Then only one site is left, whose labels are the others' turned round."""
    x, y, group = classes(5, 3, 3, 2, rows=300)
    federation = Simulation(
        nn.Linear(3, 2).double(), cross_entropy_loss, [(x, y, group), (x, 1 - y, group)]
    )
    known = state_after(federation, [(0, 1)] * 4)
    later = state_after(federation, [(0, 1)] * 4 + [(0,), (1,), (0,), (1,), (0,), (1,), (0,)])
    assert torch.equal(known.selected, later.selected)


def test_candidates_pass_their_trial_on_enough_rows_of_every_player_that_counts() -> None:
    counts, included = torch.tensor([50, 20, 2]), torch.tensor([True, True, False])
    model, sites = torch.zeros(2), torch.tensor([50, 20, 0])
    start = new_trial(torch.zeros(2), 3, risk=0.6)
    once = start.with_round(2, model, torch.tensor([25.0, 5.0, 9.0]), torch.tensor([50, 19, 0]))
    twice = once.with_round(3, model, torch.tensor([25.0, 5.0, 0.0]), sites)
    assert not once.is_passed(counts, included)
    assert not twice.is_passed(counts, included)
    enough = twice.with_round(3, model, torch.tensor([0.0, 0.3, 0.0]), torch.tensor([0, 1, 0]))
    assert enough.is_passed(counts, included)
    # The rounds' risks of the first player are now 0.5, 0.5 and 0.8.
    worse = enough.with_round(9, model, torch.tensor([8.0, 0.0, 0.0]), torch.tensor([10, 0, 0]))
    assert not worse.is_passed(counts, included)


def test_the_estimate_of_candidates_must_be_better_by_its_standard_error() -> None:
    """Risks 0.4 and 0.7 on rows of equal weight: the mean is 0.55, its standard error 0.15."""
    counts, included, rows = torch.tensor([60]), torch.tensor([True]), torch.tensor([120])
    candidates = new_trial(torch.zeros(2), 1, risk=0.69)
    for model, risk in ((torch.zeros(2), 0.4), (torch.ones(2), 0.7)):
        candidates = candidates.with_round(4, model, risk * rows, rows)
    assert not candidates.is_passed(counts, included)
    assert replace(candidates, risk=0.71).is_passed(counts, included)
    assert torch.equal(candidates.mean, torch.full((2,), 0.5))
