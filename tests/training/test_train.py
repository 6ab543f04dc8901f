"""The round loop: what it refuses, when it stops, and what a round shows.

A run's log of rounds: what was done after the checkpoint is dropped, damage is told.

What the round loop does for methods that need more than one sum of replies per round.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.files import JsonLog
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import Loss, brier_loss, squared_error_loss
from fedminmax.core.messages import Reveals, RoundKey
from fedminmax.core.models import Mixture
from fedminmax.methods.afl import AFL
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.training.checkpoint import load_checkpoint, resume_run, save_checkpoint
from fedminmax.training.progress import initial_progress
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit, train
from tests.complaints import complaint_of
from tests.problems import (
    Point,
    half_squared_distance,
    points,
    quadratic_federation,
    softmax_problem,
)
from tests.training.made_up_rounds import made_up_round

HUGE = 1e60
ONE_STEP_EACH: list[AnyMethod[Any]] = [
    FedMinMax(learning_rate=HUGE),
    AFL(learning_rate=HUGE),
    FedAvg(learning_rate=HUGE, epochs=1, batch_size=None),
    FedMinMaxLocal(learning_rate=HUGE, epochs=1, batch_size=None),
]
MANY_STEPS: list[AnyMethod[Any]] = [
    FedAvg(learning_rate=HUGE, epochs=9),
    QFedAvg(0.2, learning_rate=HUGE, epochs=9),
    QFedAvg(5.0, learning_rate=HUGE, epochs=9),
    FedMinMaxLocal(learning_rate=HUGE, epochs=9),
]


@pytest.mark.parametrize("rounds", [0, -5])
def test_at_least_one_round_is_asked_for(rounds: int) -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    message = complaint_of(lambda: train(federation, FedMinMax(), rounds=rounds))
    assert f"rounds = {rounds}; give a whole number of at least 1" in message


@pytest.mark.parametrize("share", [0.0, -0.1, 1.001, math.nan])
def test_participation_is_a_share(share: float) -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    message = complaint_of(lambda: train(federation, FedMinMax(), rounds=1, participation=share))
    assert f"participation = {share:g}; give a number above 0, at most 1" in message


def test_seeds_are_not_negative() -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    assert "seed = -1" in complaint_of(lambda: train(federation, FedMinMax(), rounds=1, seed=-1))


@pytest.mark.parametrize("method", ONE_STEP_EACH, ids=lambda method: method.name)
def test_divergence_names_the_round_the_method_and_the_group(method: AnyMethod[Any]) -> None:
    """theta^t is about 1e60^t: its squared loss overflows at theta^3, which enters round 4."""
    federation = Simulation(
        Point([0.0]), half_squared_distance, [points([[[1.0]]])], group_names=["women"]
    )
    rounds = train(federation, method, rounds=10)
    assert [next(rounds).number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(DivergedError) as caught:
        next(rounds)
    message = str(caught.value)
    assert message.startswith(f"{method.name} diverged in round 4: the loss of 'women'")
    assert "learning rate below 1e+60" in message
    assert "\n" not in message


@pytest.mark.parametrize("method", MANY_STEPS, ids=lambda method: method.name)
def test_local_divergence_is_seen_in_its_own_round(method: AnyMethod[Any]) -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    with pytest.raises(DivergedError, match=r"diverged in round 1: the parameter step"):
        list(train(federation, method, rounds=3))


def test_a_method_that_adapts_its_steps_is_not_told_to_take_a_smaller_rate() -> None:
    federation = quadratic_federation([0.0], [points([[[1e200]]])])
    with pytest.raises(DivergedError, match=r"is not finite; scale the features$"):
        list(train(federation, FedMinMaxFast(), rounds=3))


def test_rounds_are_numbered_and_the_output_is_the_papers() -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    rounds = list(train(federation, FedMinMax(learning_rate=0.5), rounds=3))
    assert [done.number for done in rounds] == [1, 2, 3]
    assert [float(done.parameters(Iterate.LAST)) for done in rounds] == [0.5, 0.75, 0.875]
    assert float(rounds[-1].parameters()) == pytest.approx((0.5 + 0.75 + 0.875) / 3, abs=1e-15)


def test_resuming_beyond_the_end_yields_nothing() -> None:
    federation = quadratic_federation([0.0], [points([[[1.0]]])])
    done = list(train(federation, FedMinMax(), rounds=3))[-1]
    assert list(train(federation, FedMinMax(), rounds=3, resume=done.progress)) == []


def test_before_the_first_round_stands_the_initial_model() -> None:
    problem = softmax_problem([[2, 1]])
    progress = initial_progress(problem.federation(), FedMinMax())
    assert progress.round == 0
    assert progress.state.parameters.tolist() == problem.start.tolist()
    assert progress.iterates.parameters(Iterate.AVERAGE).tolist() == problem.start.tolist()


def test_the_worst_group_is_named_among_those_seen() -> None:
    """At theta = 0 the targets 1, 3, 2 give risks 1/2, 9/2, 2."""
    rows = points([[[1.0]], [[3.0]], [[2.0]]])
    federation = Simulation(
        Point([0.0]), half_squared_distance, [rows], group_names=["a", "b", "c"]
    )
    done = next(train(federation, FedMinMax(), rounds=1))
    assert (done.worst_group, done.worst_risk) == ("b", 4.5)


def test_the_trained_model_predicts_with_the_given_parameters() -> None:
    problem = softmax_problem([[2, 1]])
    federation = problem.federation()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    theta = torch.arange(9.0, dtype=torch.float64)
    model = federation.model(theta)
    assert not model.training
    # Weights [[0, 1], [2, 3], [4, 5]] and bias [6, 7, 8].
    assert model(x).tolist() == [[8.0, 15.0, 22.0]]


def test_a_round_has_the_models_that_its_parameters_are_of() -> None:
    federation = softmax_problem([[2, 1]]).federation()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    done = list(train(federation, FedMinMax(), rounds=3))[-1]
    for which in (None, Iterate.LAST, Iterate.AVERAGE):
        expected = federation.model(done.parameters(which))(x)
        assert torch.equal(done.model(which)(x), expected)
    assert not torch.equal(done.model()(x), done.model(Iterate.LAST)(x))


def test_the_model_of_a_mixture_averages_its_members_probabilities() -> None:
    federation = softmax_problem([[2, 1]]).federation()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    done = list(train(federation, MinimaxFair(0.5, 2.0, fit_rounds=2), rounds=9))[-1]
    assert len(done.members) == 3
    own = [torch.softmax(federation.model(member)(x), dim=1) for member in done.members]
    found = done.model()
    assert isinstance(found, Mixture)
    torch.testing.assert_close(found(x).exp(), torch.stack(own).mean(dim=0))
    assert not isinstance(done.model(Iterate.LAST), Mixture)


def test_a_rate_that_is_left_open_is_safe_for_the_rows() -> None:
    """Rows (2) and (-2) with a 1: mean x x^T is diag(4, 1), so the rate is 1 / (2 * 4), rounded."""
    x = torch.tensor([[2.0], [-2.0]])
    rows = (x, x[:, 0], torch.tensor([0, 0]))
    federation = Simulation(nn.Linear(1, 1), squared_error_loss, [rows])
    assert federation.safe_learning_rate == 0.12
    found = list(train(federation, FedMinMax(), rounds=3))[-1]
    same = list(train(federation, FedMinMax(0.12), rounds=3))[-1]
    assert torch.equal(found.parameters(), same.parameters())
    assert found.progress.method == same.progress.method
    list(train(federation, FedMinMax(0.12), rounds=4, resume=found.progress))
    assert list(train(federation, FedMinMax(), rounds=200))[-1].worst_risk < 1e-6
    order = FedMinMax().order(found.progress.state, RoundKey(0, 1))
    message = complaint_of(lambda: federation.ask(FedMinMax(), order, [0]))
    assert "has no learning rate yet; start with train" in message


@pytest.mark.parametrize("loss", [brier_loss, lambda outputs, y: brier_loss(outputs, y)])
def test_networks_and_losses_of_ones_own_take_a_tenth(loss: Loss) -> None:
    rows = (torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([0, 0]))
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    assert Simulation(network, loss, [rows]).safe_learning_rate == 0.1


def test_parameters_that_overflow_after_the_last_pass_are_not_returned() -> None:
    """float32: a step of 2e38 twice is finite in float64 sums, but theta^2 is not a number."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    rows = (torch.ones(1, 1), torch.zeros(1), torch.tensor([0]))
    federation = Simulation(model, lambda out, _: -out[:, 0], [rows])
    rounds = train(federation, FedMinMax(learning_rate=2e38), rounds=2)
    assert next(rounds).number == 1
    with pytest.raises(DivergedError, match="round 2: a parameter is not finite"):
        next(rounds)


def test_a_model_with_an_unused_parameter_can_be_trained_locally() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(1, 1)
            self.unused = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.used(x)
            return result

    rows = (torch.ones(4, 1), torch.zeros(4), torch.tensor([0, 0, 1, 1]))
    federation = Simulation(Unused(), squared_error_loss, [rows])
    (done,) = train(federation, FedAvg(epochs=1), rounds=1)
    moved = done.parameters() - federation.initial_parameters
    assert moved.count_nonzero() == 2


@pytest.mark.parametrize(("seed", "participation"), [(1, 1.0), (0, 0.5)])
def test_another_seed_or_participation_does_not_go_on(seed: int, participation: float) -> None:
    federation = softmax_problem([[2, 1], [1, 2]]).federation()
    (done,) = train(federation, FedAvg(), rounds=1)
    message = complaint_of(
        lambda: train(
            federation,
            FedAvg(),
            rounds=2,
            seed=seed,
            participation=participation,
            resume=done.progress,
        )
    )
    assert message.startswith("cannot resume")


def test_rounds_and_epochs_are_counted_in_whole_numbers() -> None:
    federation = softmax_problem([[2, 1], [1, 2]]).federation()
    half: Any = 2.5
    assert "rounds = 2.5" in complaint_of(lambda: train(federation, FedAvg(), rounds=half))
    assert "epochs = 2.5" in complaint_of(lambda: FedAvg(epochs=half))
    assert "batch_size = 2.5" in complaint_of(lambda: QFedAvg(1.0, batch_size=half))


def test_fit_returns_the_last_round_of_train() -> None:
    federation = softmax_problem([[4, 2], [1, 5], [3, 3]]).federation()
    *_, last = train(federation, FedMinMax(), rounds=3, seed=4, participation=0.7)
    result = fit(federation, FedMinMax(), rounds=3, seed=4, participation=0.7)
    assert result.number == 3
    assert torch.equal(result.parameters(), last.parameters())


ROUNDS = [made_up_round(1), made_up_round(2)]
LINES = [json.dumps(record.as_json()) + "\n" for record in ROUNDS]


def test_lines_after_the_restored_round_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text("".join(LINES))
    (kept,) = JsonLog(path, RoundRecord).drop_after(1)
    assert read_rounds(path) == [kept] == ROUNDS[:1]


def test_seconds_add_up_over_calls(tmp_path: Path) -> None:
    federation, log = (
        softmax_problem([[4, 2]]).federation(),
        JsonLog(tmp_path / ROUNDS_FILE, RoundRecord),
    )
    for so_far in resume_run(tmp_path, federation, FedMinMax(), rounds=2, seed=0):
        if so_far.record is not None:
            log.add(replace(so_far.record, seconds=20.0))
    resumed = next(resume_run(tmp_path, federation, FedMinMax(), rounds=3, seed=0))
    assert 20.0 <= resumed.seconds < 40.0


def test_a_line_cut_off_by_a_crash_is_not_part_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(LINES[0] + LINES[1][:20])
    assert [record.round for record in read_rounds(path)] == [1]


@pytest.mark.parametrize("damage", ["\0\0\0\0\n", "[]\n", '{"round": 2}\n'])
def test_a_damaged_line_is_told(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(LINES[0] + damage)
    assert "rounds.jsonl is damaged" in complaint_of(lambda: read_rounds(path))


PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


def federation_showing(reveals: Reveals) -> Simulation:
    return Simulation(PROBLEM.model(), brier_loss, PROBLEM.sites, reveals=reveals)


@pytest.mark.parametrize(
    ("method", "needs"),
    [(AFL(), Reveals.OWN_LOSS), (FedMGDA(), Reveals.OWN_VECTOR), (FedMinMax(), Reveals.SUMS)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_method_runs_only_where_it_is_shown_what_it_needs(
    method: AnyMethod[Any], needs: Reveals
) -> None:
    for shown in Reveals:
        federation = federation_showing(shown)
        if shown.level >= needs.level:
            assert next(iter(train(federation, method, rounds=1))).number == 1
        else:
            with pytest.raises(InputError, match=f"needs {needs.value}.*shown {shown.value}"):
                train(federation, method, rounds=1)


def test_a_mixture_has_members_and_no_single_vector() -> None:
    method = MinimaxFair(learning_rate=0.5, fit_rounds=2)
    done = list(train(PROBLEM.federation(), method, rounds=9))[-1]
    assert done.members.shape == (3, len(PROBLEM.start))
    with pytest.raises(InputError, match="mixture of 3 models"):
        done.parameters()
    assert done.parameters(Iterate.LAST).shape == (len(PROBLEM.start),)


@pytest.mark.parametrize("method", [APStar(fit_rounds=2), FedMinMax()], ids=["APStar", "FedMinMax"])
def test_the_answer_of_other_methods_is_one_line(method: AnyMethod[Any]) -> None:
    done = list(train(PROBLEM.federation(), method, rounds=7))[-1]
    assert torch.equal(done.members, done.parameters().unsqueeze(0))


def test_what_sites_keep_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    federation, method = PROBLEM.federation(), Ditto(epochs=1)
    done = next(iter(train(federation, method, rounds=1)))
    assert done.progress.kept.shape == (3, len(PROBLEM.start))
    smaller = replace(done.progress, kept=done.progress.kept[:2])
    save_checkpoint(tmp_path, smaller)
    with pytest.raises(InputError, match="'kept' differs"):
        load_checkpoint(tmp_path, initial_progress(federation, method))
