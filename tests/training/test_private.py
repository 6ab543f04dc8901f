"""A privacy guarantee: what one unit can change, the noise on it, an audit, and refusals.

Two federations with the same key draw the same noise, so the difference of their answers is what
the rows changed: the sensitivity is seen without any noise.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss
from fedminmax.core.messages import Order, RoundKey, Sums
from fedminmax.core.models import linear, mlp
from fedminmax.core.noise import Unit
from fedminmax.core.privacy import mechanism as privacy_module
from fedminmax.core.privacy.mechanism import (
    SMALL_PART,
    Mechanism,
    Privacy,
    default_clip,
    gaussian_noise,
)
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import SumsMethod
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.problems import Rows

PROMISE = Privacy(epsilon=4.0, delta=1e-3, clip=0.6, rounds=3)
BOTH_BLOCKS = math.sqrt(1.0 + SMALL_PART**2)
FAST = FedMinMaxFast(curvature=False)


def small_rows(rows: int = 7, groups: int = 3, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    return x, torch.randint(2, (rows,), generator=generator), torch.arange(rows) % groups


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(1)
    return (linear(2, 2) if kind == "linear" else mlp(2, 2, (3,))).double()


def federation_of(
    rows: Rows, promise: Privacy = PROMISE, kind: str = "linear", loss: Loss = brier_loss
) -> Simulation:
    """Two sites share the rows; the groups' names keep all of them, rows or no rows."""
    x, y, group = rows
    half = len(x) // 2
    parts = [(x[:half], y[:half], group[:half]), (x[half:], y[half:], group[half:])]
    return Simulation(model_of(kind), loss, parts, privacy=promise)


def without(rows: Rows, number: int) -> Rows:
    keep = torch.arange(len(rows[0])) != number
    x, y, group = (own[keep] for own in rows)
    return x, y, group


def with_row(rows: Rows, x: Tensor, y: int, group: int) -> Rows:
    return (
        torch.cat([rows[0], x.unsqueeze(0)]),
        torch.cat([rows[1], torch.tensor([y])]),
        torch.cat([rows[2], torch.tensor([group])]),
    )


def neighbours(rows: Rows) -> list[Rows]:
    """All tables with one row less, and with one row more of a grid that has far-off ones."""
    groups = int(rows[2].max()) + 1
    less = [without(rows, number) for number in range(groups, len(rows[0]))]
    grid = [(-30.0, 0.0), (9.0, 9.0)]
    more = [
        with_row(rows, torch.tensor(x, dtype=torch.float64), y, group)
        for x in grid
        for y in (0, 1)
        for group in {0, groups - 1}
    ]
    return less + more


def centred(total: Sums, max_loss: float) -> Tensor:
    return total.group_loss - 0.5 * max_loss * total.group_count


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    ("kind", "loss"), [("linear", brier_loss), ("mlp", brier_loss), ("linear", cross_entropy_loss)]
)
def test_no_row_changes_an_answer_by_more_than_the_noise_is_planned_for(
    groups: int, kind: str, loss: Loss
) -> None:
    """A groups' sums are as sensitive as one's."""
    rows = small_rows(groups=groups)
    before = federation_of(rows, kind=kind, loss=loss)
    max_loss = 2.0 if loss is brier_loss else 4.0 * math.log(2.0)
    theta = before.initial_parameters
    weights = torch.linspace(0.5, 2.0, groups, dtype=torch.float64)
    plain = Order(RoundKey(0, 1), theta, torch.zeros(0, dtype=torch.float64))
    rate = 0.3
    cases: list[tuple[SumsMethod[Any], Order, float]] = [
        (FAST, plain, PROMISE.clip),
        (FedAvgFast(curvature=False), plain, PROMISE.clip),
        (
            FedMinMax(rate),
            Order(RoundKey(0, 1), theta, weights),
            rate * PROMISE.clip * float(weights.max()),
        ),
    ]
    found = []
    answers = [before.ask(method, order, (0,)).total for method, order, _ in cases]
    for other in neighbours(rows):
        after = federation_of(other, kind=kind, loss=loss)
        for (method, order, most), own in zip(cases, answers, strict=True):
            total = after.ask(method, order, (0,)).total
            step = (total.step - own.step).norm() / most
            losses = (centred(total, max_loss) - centred(own, max_loss)).norm() / (0.5 * max_loss)
            found.append(math.hypot(float(step), SMALL_PART * float(losses)))
    assert max(found) <= BOTH_BLOCKS + 1e-6
    # The bound is not far above what rows can do.
    assert max(found) > 0.9 * BOTH_BLOCKS


@pytest.mark.parametrize("groups", [1, 3])
def test_no_row_changes_the_census_by_more_than_the_noise_is_planned_for(groups: int) -> None:
    rows = small_rows(rows=60, groups=groups)
    own, found = federation_of(rows).census, []
    assert own.moment is not None
    longest = PROMISE.clip / (16.0 * math.sqrt(2.0) / 27.0)
    for other in neighbours(rows)[-8:]:
        census = federation_of(other).census
        assert census.moment is not None
        moment = float((census.moment - own.moment).norm()) / longest**2
        counts = float((census.counts - own.counts).double().norm())
        found.append(math.hypot(moment, SMALL_PART * counts))
    assert max(found) <= BOTH_BLOCKS + 1e-6
    assert max(found) > 0.9 * BOTH_BLOCKS


def test_no_site_changes_an_answer_by_more_than_the_noise_is_planned_for() -> None:
    """Whatever a site has: far-off rows, many of them, one group or all."""
    promise = replace(PROMISE, unit=Unit.SITE, delta=0.05)
    x, y, group = small_rows(12)
    others = [
        (scale * x[:many], y[:many], group[:many]) for scale in (1.0, 50.0) for many in (1, 12)
    ]
    methods: list[SumsMethod[Any]] = [FAST, FedAvg(learning_rate=5.0, epochs=2), FedMinMax(0.3)]
    for method in methods:
        totals = []
        for own in others:
            sites = [small_rows(9, seed=2), own]
            federation = Simulation(model_of("linear"), brier_loss, sites, privacy=promise)
            state = initial_progress(federation, method).state
            order = replace(method.order(state, RoundKey(0, 1)), weights=torch.ones(3).double())
            totals.append(federation.ask(method, order, (0,)).total)
        for one in totals:
            for two in totals:
                # Neither of the two is the empty site, so twice the sensitivity is between them.
                step = (one.step - two.step).norm() / (1000.0 * promise.clip)
                losses = (centred(one, 2.0) - centred(two, 2.0)).norm() / 1000.0
                assert math.hypot(float(step), SMALL_PART * float(losses)) <= 2 * BOTH_BLOCKS


def test_the_noise_is_as_planned_whoever_stays_silent_or_tells_his() -> None:
    promise = replace(PROMISE, colluding=2)
    mechanism = Mechanism(promise, sites=5, max_loss=2.0, max_row=1.0, key=b"key")
    numbers = torch.zeros(40_000)
    first, second = mechanism.noise("round 1", numbers, numbers)
    both = promise.releases.noise_multiplier * BOTH_BLOCKS
    assert float(first.std()) == pytest.approx(both * math.sqrt(5 / 3), rel=0.02)
    assert float(second.std()) == pytest.approx(both / SMALL_PART * math.sqrt(5 / 3), rel=0.02)
    assert stats.kstest(first.numpy() / float(first.std()), "norm").pvalue > 1e-3
    assert abs(float(np.corrcoef(first.numpy(), second.numpy())[0, 1])) < 0.02
    # What two sites drew, they may tell: the rest still has the planned deviation.
    told = sum(gaussian_noise(b"key", f"round 1, site {site}", 80_000)[:40_000] for site in (0, 3))
    rest = first.numpy() - both / math.sqrt(3) * told
    assert float(np.std(rest)) == pytest.approx(both, rel=0.02)
    assert mechanism.levels.gradient == pytest.approx(both * math.sqrt(5 / 3) * promise.clip)


def test_noise_differs_by_round_seed_method_and_key_and_can_be_repeated() -> None:
    rows = small_rows()
    theta = torch.zeros(6, dtype=torch.float64)

    def step(key: bytes, moment: RoundKey, method: FedMinMaxFast = FAST) -> Tensor:
        federation = Simulation(
            model_of("linear"), brier_loss, [rows], privacy=PROMISE, noise_key=key
        )
        return federation.ask(method, Order(moment, theta, torch.zeros(0)), (0,)).total.step

    own = step(b"a", RoundKey(0, 1))
    assert torch.equal(own, step(b"a", RoundKey(0, 1)))
    for other in (
        step(b"b", RoundKey(0, 1)),
        step(b"a", RoundKey(1, 1)),
        step(b"a", RoundKey(0, 2)),
        step(b"a", RoundKey(0, 1), replace(FAST, name="other")),
    ):
        assert float((own - other).abs().min()) > 1e-6


def lower_bound_on_epsilon(present: NDArray[np.float64], absent: NDArray[np.float64]) -> float:
    """Clopper and Pearson's bounds (95%) of how well a threshold tells the two apart.

    The threshold is chosen on the first half of the runs, and judged by the other.
    """
    half = len(present) // 2
    best, bound = 0.0, -math.inf
    for threshold in np.quantile(np.r_[present[:half], absent[:half]], np.linspace(0.05, 0.95, 19)):
        gain = np.mean(present[:half] > threshold) / max(np.mean(absent[:half] > threshold), 1e-3)
        best, bound = (threshold, gain) if gain > bound else (best, bound)
    runs = len(present) - half
    hits, alarms = int(np.sum(present[half:] > best)), int(np.sum(absent[half:] > best))
    least_hits = stats.beta.ppf(0.025, hits, runs - hits + 1) if hits else 0.0
    most_alarms = stats.beta.ppf(0.975, alarms + 1, runs - alarms)
    return math.log(max(least_hits - 1e-3, 1e-9) / most_alarms)


@pytest.mark.parametrize("weaker", [1.0, 0.05])
def test_an_audit_with_a_canary_stays_below_the_promise_unless_noise_is_missing(
    weaker: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary's own gradient is what the attacker looks for (Jagielski et al. 2020)."""
    promise = Privacy(epsilon=1.0, delta=1e-3, clip=0.6, rounds=1)

    def weak(key: bytes, label: str, numbers: int) -> NDArray[np.float64]:
        return weaker * gaussian_noise(key, label, numbers)

    monkeypatch.setattr(privacy_module, "gaussian_noise", weak)
    rows = small_rows()
    canary = torch.tensor([3.0, -3.0], dtype=torch.float64)
    steps = []
    for present in (True, False):
        federation = federation_of(with_row(rows, canary, 1, 0) if present else rows, promise)
        theta = federation.initial_parameters
        steps.append(
            torch.stack(
                [
                    federation.ask(
                        FAST, Order(RoundKey(seed, 1), theta, torch.zeros(0)), (0,)
                    ).total.step
                    for seed in range(300)
                ]
            )
        )
    direction = steps[0].mean(dim=0) - steps[1].mean(dim=0)
    scores = [(own @ direction).numpy() for own in steps]
    bound = lower_bound_on_epsilon(scores[0], scores[1])
    assert (bound < promise.epsilon) is (weaker == 1.0)


def easy_problem() -> list[Rows]:
    """Two groups of 3,000 rows with opposite slopes in the second feature."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6_000, 2, generator=generator)
    group = torch.arange(6_000) % 2
    score = 3.0 * x[:, 0] + torch.where(group == 0, 1.0, -0.5) * x[:, 1]
    y = (torch.rand(6_000, generator=generator) < torch.sigmoid(score)).long()
    return [(x[part::3], y[part::3], group[part::3]) for part in range(3)]


def worst_of(federation: Simulation, method: FedMinMaxFast, rounds: int) -> float:
    *_, last = train(federation, method, rounds=rounds)
    exact = Simulation(last.model(), cross_entropy_loss, easy_problem())
    first = next(train(exact, FedMinMaxFast(), rounds=1))
    return first.worst_risk


def test_few_noisy_rounds_come_close_to_the_minimax() -> None:
    torch.manual_seed(0)
    model = linear(2, 2)
    best = worst_of(Simulation(model, cross_entropy_loss, easy_problem()), FedMinMaxFast(), 30)
    promise = Privacy(2.0, 1e-5, clip=default_clip(cross_entropy_loss, 2), rounds=20)
    # One draw of the noise moves this by 0.005: the median of several is a property of the method.
    noisy = [
        worst_of(
            Simulation(model, cross_entropy_loss, easy_problem(), privacy=promise, noise_key=key),
            FAST,
            20,
        )
        for key in (b"1", b"2", b"3", b"4", b"5", b"6", b"7")
    ]
    assert median(noisy) < best + 0.02


def test_a_run_that_stops_goes_on_to_the_same_model() -> None:
    promise = replace(PROMISE, rounds=5)
    federation = federation_of(small_rows(90), promise)
    *_, whole = train(federation, FAST, rounds=5)
    *_, half = train(federation, FAST, rounds=2)
    *_, resumed = train(
        federation_of(small_rows(90), promise), FAST, rounds=5, resume=half.progress
    )
    assert torch.equal(whole.members, resumed.members)


def test_where_noise_would_rule_in_all_groups_the_mean_risk_is_trained() -> None:
    """All weights stay at the groups' shares, as the server knows them."""
    federation = federation_of(small_rows(90), replace(PROMISE, epsilon=0.5))
    *_, last = train(federation, FAST, rounds=3)
    torch.testing.assert_close(last.weights, federation.census.group_shares)


def asked(**changes: object) -> Simulation:
    return federation_of(small_rows(), replace(PROMISE, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: asked(epsilon=0.0), "epsilon = 0; give a positive number"),
        (lambda: asked(delta=0.0), "delta = 0; give a number above 0"),
        (lambda: asked(delta=0.2), "delta = 0.2, but there are 7 rows; give one below 1 / rows"),
        (lambda: asked(clip=-1.0), "clip = -1; give a positive number"),
        (lambda: asked(colluding=2), "colluding = 2, but there are 2 sites"),
        (lambda: asked(unit=Unit.SITE, delta=0.5), "but there are 2 sites"),
        (lambda: train(asked(), FAST, rounds=4), "rounds = 4, but the privacy guarantee is for 3"),
        (
            lambda: train(asked(), FAST, rounds=3, participation=0.5),
            "participation = 0.5, but a privacy guarantee",
        ),
        (lambda: train(asked(), FedMinMaxFast(), rounds=3), "curvature sums cannot keep a privacy"),
        (lambda: train(asked(), AFL(0.1), rounds=3), "AFL cannot keep a privacy guarantee"),
        (lambda: train(asked(), FedAvg(), rounds=3), 'with unit = "row"; choose fedminmax-fast'),
        (
            lambda: (
                asked().ask(FAST, Order(RoundKey(0, 4), torch.zeros(6), torch.zeros(0)), (0,)).total
            ),
            "round 4 is beyond the 3 rounds",
        ),
        (
            lambda: Simulation(
                model_of("linear"), brier_loss, [small_rows()], privacy=PROMISE, validation=0.3
            ),
            "losses on validation rows are not part of the privacy",
        ),
        (
            lambda: Simulation(
                nn.Sequential(nn.Linear(2, 4), nn.Dropout(), nn.Linear(4, 2)).double(),
                brier_loss,
                [small_rows()],
                privacy=PROMISE,
            ),
            "draws random numbers",
        ),
    ],
)
def test_what_no_promise_can_cover_is_refused(attempt: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        attempt()
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
