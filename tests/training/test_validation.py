"""Choosing the round by validation rows, on problems whose best round is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.data.partition import set_aside
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.testing import Case
from fedminmax.training.checkpoint import load_checkpoint, save_checkpoint
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.complaints import complaint_of
from tests.contract.cases import every_method
from tests.problems import Point, Rows, half_squared_distance, points, pooled, softmax_problem

RATE = 0.1
METHOD = FedMinMax(learning_rate=RATE, adversary_rate=0.3)
ROWS = 200
PROBLEM = softmax_problem([[40, 30], [25, 50], [6, 2]], seed=3, classes=2)
X, Y, GROUP = PROBLEM.sites[0]
NO_ROWS = (X[:0], Y[:0], GROUP[:0])


def overfitting(*means: float, spread: float = 0.0) -> Simulation:
    """All training targets are 1, so that theta^t = 1 - (1 - rate)^t; validation ones are not."""
    validation = [[[mean - spread], [mean + spread]] * (ROWS // 2) for mean in means]
    return Simulation(
        Point([0.0]),
        half_squared_distance,
        [points([[[1.0]] * 3 for _ in means])],
        validation=[points(validation)],
    )


def model_after(rounds: int) -> float:
    return float(1.0 - (1.0 - RATE) ** rounds)


def last(federation: Simulation, rounds: int, **words: Any) -> Round[Any]:
    *_, done = train(federation, METHOD, rounds=rounds, **words)
    return done


def test_a_few_records_that_only_get_worse_do_not_choose_the_round() -> None:
    """64 odd records of one group have the highest risk in every round, which only rises.

    The worst of all groups would choose the start; everybody else gains until theta is 0.9.
    """
    odd, others = [[-3.0]] * 64, [[0.9]] * ROWS
    federation = Simulation(
        Point([0.0]),
        half_squared_distance,
        [points([[[1.0]] * 3 for _ in range(3)])],
        validation=[points([others, others, odd])],
    )
    expected = int(np.argmin([abs(model_after(t) - 0.9) for t in range(41)]))
    done = last(federation, 40)
    assert done.chosen is not None
    assert done.chosen.round == expected > 0


def test_with_a_share_kept_the_mean_helps_to_choose_the_round() -> None:
    """The worst of three groups of one size would choose theta = 0.55; here it is 0.62."""
    means = np.array([0.2, 0.9, 0.9])
    risks = np.array([(model_after(t) - means) ** 2 / 2 for t in range(31)])
    objective = 0.1 * risks.max(axis=1) + 0.9 * risks.mean(axis=1)
    method = FedMinMax(learning_rate=RATE, adversary_rate=0.3, keep_share=0.9)
    *_, done = train(overfitting(*means), method, rounds=30)
    assert done.chosen is not None
    assert done.chosen.round == int(objective.argmin()) != int(risks.max(axis=1).argmin())
    assert done.chosen.risk == pytest.approx(float(objective.min()), rel=1e-12)


def test_the_best_round_of_a_run_that_overfits() -> None:
    """The worst group's risk is max_a (theta - m_a)^2 / 2, lowest at the middle of the means."""
    means = (0.4, 0.62)
    risks = [max((model_after(t) - mean) ** 2 / 2 for mean in means) for t in range(31)]
    expected = int(np.argmin(risks))
    assert 0 < expected < 30
    done = last(overfitting(*means), 30)
    assert done.chosen is not None
    assert done.chosen.round == expected
    assert done.chosen.risk == pytest.approx(risks[expected], rel=1e-12)
    assert done.parameters().item() == pytest.approx(model_after(expected), rel=1e-12)
    assert done.answer is Iterate.BEST
    assert done.parameters(Iterate.LAST).item() == pytest.approx(model_after(30), rel=1e-12)


def test_ties_in_units_of_the_standard_error_go_to_the_earlier_round() -> None:
    """Losses are (theta - m -+ s)^2 / 2: the deviation between rows is |theta - m| s."""
    mean, spread = 0.6, 0.2

    def risk(t: int) -> float:
        return ((model_after(t) - mean) ** 2 + spread**2) / 2

    def error(t: int) -> float:
        return float(abs(model_after(t) - mean) * spread / np.sqrt(ROWS - 1))

    best = 0
    for t in range(31):
        if risk(t) < risk(best) - 0.1 * error(best):
            best = t
    done = last(overfitting(mean, spread=spread), 30)
    assert done.chosen is not None
    assert done.chosen.round == best
    assert done.chosen.standard_error == pytest.approx(error(best), rel=1e-9)


def test_a_round_tells_of_the_model_that_entered_it_and_the_last_model_is_measured_too() -> None:
    rounds = list(train(overfitting(0.9), METHOD, rounds=5))
    for done in rounds:
        expected = (model_after(done.number - 1) - 0.9) ** 2 / 2
        assert done.validation_risks.item() == pytest.approx(expected, rel=1e-12)
    # The risk falls all along: the best so far is the one before, and in the end the last.
    assert [done.chosen.round for done in rounds if done.chosen] == [0, 1, 2, 3, 5]
    assert rounds[-1].progress.iterates.best.latest.round == 5


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_stops_after_so_many_models_that_are_no_better(patience: int) -> None:
    whole = last(overfitting(0.5), 30)
    assert whole.chosen is not None
    done = last(overfitting(0.5), 30, patience=patience)
    assert done.number == whole.chosen.round + patience
    assert done.chosen == whole.chosen
    again = train(overfitting(0.5), METHOD, rounds=30, patience=patience, resume=done.progress)
    assert list(again) == []
    *_, prolonged = train(overfitting(0.5), METHOD, rounds=30, resume=done.progress)
    ends = [done.progress.iterates.best for done in (prolonged, whole)]
    assert (ends[0].chosen, ends[0].latest) == (ends[1].chosen, ends[1].latest)


def federation_of(sites: list[Rows], validation: Any) -> Simulation:
    return Simulation(PROBLEM.model(), brier_loss, sites, validation=validation)


def split(rows: Rows, at: list[int]) -> list[Rows]:
    """Deal rows out to sites."""
    site = torch.tensor(at)
    return [tuple(part[site == k] for part in rows) for k in range(3)]  # type: ignore[misc]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=150, max_size=150))
def test_whoever_holds_the_rows_the_same_round_is_chosen(at: list[int]) -> None:
    rows = pooled(PROBLEM.sites)
    first, other = split(rows, [0] * 90 + [1] * 63)[:2]
    sites = [0, 1, 2, *at]  # no site is without training rows
    one, many = (
        list(train(federation, METHOD, rounds=8))[-1]
        for federation in (
            federation_of([first], [other]),
            federation_of(split(first, sites[:90]), split(other, sites[90:])),
        )
    )
    assert one.chosen is not None
    assert many.chosen is not None
    assert one.chosen.round == many.chosen.round
    assert many.chosen.risk == pytest.approx(one.chosen.risk, abs=1e-12)
    assert many.chosen.standard_error == pytest.approx(one.chosen.standard_error, abs=1e-10)
    torch.testing.assert_close(one.parameters(), many.parameters(), atol=1e-12, rtol=0)


@every_method
def test_measuring_changes_no_run_and_resuming_changes_no_choice(
    case: Case, tmp_path: Path
) -> None:
    words: Any = {"seed": 5, "participation": 0.75}
    federation = PROBLEM.federation(validation=0.3)
    whole = list(train(federation, case.mini_batch, rounds=4, **words))
    left = [
        set_aside(Examples(*own), 0.3, 0, str(number))[0]
        for number, own in enumerate(PROBLEM.sites)
    ]
    same_rows = [(own.x, own.y, own.group) for own in left]
    plain = train(PROBLEM.federation(sites=same_rows), case.mini_batch, rounds=4, **words)
    for done, bare in zip(whole, plain, strict=True):
        assert torch.equal(done.parameters(Iterate.LAST), bare.parameters(Iterate.LAST))
        assert torch.equal(done.weights, bare.weights)
        assert len(done.validation_risks) == 2

    for done in train(federation, case.mini_batch, rounds=2, **words):
        save_checkpoint(tmp_path, done.progress)
    again = PROBLEM.federation(validation=0.3)
    restored = load_checkpoint(tmp_path, initial_progress(again, case.mini_batch))
    assert restored is not None
    *_, rest = train(again, case.mini_batch, rounds=4, resume=restored.progress, **words)
    assert rest.chosen == whole[-1].chosen
    assert torch.equal(rest.members, whole[-1].members)


def test_a_model_with_dropout_is_measured_as_it_predicts() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2)).double()
    validation = [(X, Y, GROUP), NO_ROWS, NO_ROWS]
    federation = Simulation(model, brier_loss, PROBLEM.sites, validation=validation)
    first, second = train(federation, METHOD, rounds=2)
    with torch.no_grad():
        losses = brier_loss(model.eval()(X), Y)
    expected = [losses[a == GROUP].mean().item() for a in range(2)]
    assert first.validation_risks.tolist() == pytest.approx(expected, rel=1e-12)
    assert second.chosen is not None


def test_a_mixture_stays_the_answer() -> None:
    method = MinimaxFair(learning_rate=0.3, fit_rounds=2)
    *_, done = train(PROBLEM.federation(validation=0.3), method, rounds=9)
    assert len(done.members) == 3
    assert done.answer is None
    assert len(done.parameters(Iterate.BEST)) == PROBLEM.start.size


def test_what_is_refused_before_the_first_round() -> None:
    def refusal(validation: Any) -> str:
        return complaint_of(lambda: federation_of(PROBLEM.sites, validation))

    assert "from 0 to 0.5" in refusal(0.8)
    assert "validation = '0.1'" in refusal("0.1")
    no_such_group = [(X, Y, GROUP + 1), NO_ROWS, NO_ROWS]
    assert "group 2, which has no training rows" in refusal(no_such_group)
    assert "rows of 1 site, but there are 3" in refusal([(X, Y, GROUP)])
    assert "no validation rows" in complaint_of(
        lambda: train(PROBLEM.federation(), METHOD, rounds=3, patience=2)
    )
    *_, done = train(PROBLEM.federation(), METHOD, rounds=1)
    assert "there is no best one" in complaint_of(lambda: done.parameters(Iterate.BEST))
