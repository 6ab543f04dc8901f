"""Rounds to the minimax answer of linear models, checked against independent solvers.

Adult has the published files' rows; the wide table is made for this (``wide_table``). The evidence:
for cross-entropy with a ridge the certificate of the run itself, compared with L-BFGS on a soft
maximum; for Brier, which is not convex, only that solver; for squared error least squares with the
run's final weights, a lower bound for all models.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.ablated_linear import AblatedLinear, Missing
from benchmarks.independent_minimax import LogisticProblem, Numbers, solve_mean, solve_minimax
from benchmarks.target_rows import SETTINGS, Reached, Target, reach
from benchmarks.timing import Contestant, time_in_turns
from benchmarks.wide_table import WideTable, wide_table
from fedminmax.core.bounds import safe_learning_rate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import RoundKey
from fedminmax.core.models import linear
from fedminmax.data.adult import load_adult
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import LocalMethod, OneStepMethod
from fedminmax.studies.study import rows_of_sites
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train

RIDGE = 1e-4
SITES = 40
ALGORITHM_1_ROUNDS = 3000
# Adult, Brier, logistic: the lowest worst training risk of these rounds.
ADULT_ROUND_3000 = 0.25726
WIDE_ROWS, WIDE_COLUMNS = 200_000, 400


def adult_cross_entropy(seeds: range) -> Iterator[Reached]:
    """Certified relative gaps on Adult."""
    targets = (
        Target("certified gap 1e-4", 1e-4, 12),
        Target("certified gap 1e-6", 1e-6, 20),
    )
    rows = load_adult().train
    for setting, seed in _cases(seeds):
        federation = _federation(rows.x, rows.y, rows.group, "cross_entropy", setting, seed)
        yield from reach(
            ("Adult, cross-entropy + ridge", setting, seed),
            federation,
            FedMinMaxFast(optimality_gap=0.0),
            targets,
            _gap,
        )


def adult_ablations(seeds: range) -> Iterator[Reached]:
    """Without one ingredient of the server at a time; with three times the rounds."""
    certified = Target("certified gap 1e-4", 1e-4, 36)
    reached = Target(f"Algorithm 1's round {ALGORITHM_1_ROUNDS:,}", ADULT_ROUND_3000, 120)
    rows = load_adult().train
    for seed in seeds:
        for loss, target, reading in (
            ("cross_entropy", certified, _gap),
            ("brier", reached, _lowest),
        ):
            federation = _federation(rows.x, rows.y, rows.group, loss, "ESG", seed)
            for missing in Missing:
                task = (f"Adult, {loss}{missing.value}", "ESG", seed)
                yield from reach(task, federation, AblatedLinear(missing), (target,), reading)


def adult_brier(seeds: range) -> Iterator[Reached]:
    """The worst training risk that Algorithm 1 has after 3,000 rounds at its safe rate."""
    rows = load_adult().train
    for setting, seed in _cases(seeds):
        federation = _federation(rows.x, rows.y, rows.group, "brier", setting, seed)
        rate = safe_learning_rate(LOSSES_BY_NAME["brier"], rows.x, rows.group, linear=True)
        plain = FedMinMax(rate)
        lowest = min(
            done.worst_risk
            for done in train(federation, plain, rounds=ALGORITHM_1_ROUNDS, seed=seed)
        )
        target = Target(f"Algorithm 1's best of {ALGORITHM_1_ROUNDS:,} rounds", lowest, 40)
        yield from reach(
            ("Adult, Brier", setting, seed),
            federation,
            FedMinMaxFast(optimality_gap=0.0),
            (target,),
            _lowest,
        )


def wide(loss: str, seeds: range) -> Iterator[Reached]:
    """Within 1e-3 of the best that an independent solver finds; SSG, PSG, ESG in turn."""
    for seed in seeds:
        table = wide_table(WIDE_ROWS, WIDE_COLUMNS, seed)
        x = table.standardised
        problem = LogisticProblem.of(x, table.label, table.group, loss, _ridge_of(loss))
        best, plain = solve_minimax(problem), solve_mean(problem)
        proof = f", proved at least {best.lower:.6f}" if np.isfinite(best.lower) else ""
        print(
            f"<!-- wide table, {loss}, seed {seed}: independent solver {best.worst:.6f}{proof} "
            f"({best.passes:,} passes); plain model's worst group {plain.worst:.6f} -->",
            flush=True,
        )
        target = Target("1e-3 of the independent solver", 1.001 * best.worst, 20)
        setting = SETTINGS[seed % len(SETTINGS)]
        federation = _federation(
            torch.tensor(x, dtype=torch.float32),
            torch.tensor(table.label),
            torch.tensor(table.group),
            loss,
            setting,
            seed,
        )
        print(f"<!-- {_pass_times(federation)} -->", flush=True)
        yield from reach(
            (f"wide table, {loss}", setting, seed),
            federation,
            FedMinMaxFast(optimality_gap=0.0),
            (target,),
            _lowest,
        )


def regression(seeds: range) -> Iterator[Reached]:
    """Squared error: the relative gap to least squares with the run's own weights."""
    for seed in seeds:
        table = wide_table(WIDE_ROWS // 10, WIDE_COLUMNS // 4, seed)
        x = torch.tensor(table.standardised)
        y, group = torch.tensor(table.quantity), torch.tensor(table.group)
        for setting in SETTINGS:
            federation = _federation(x, y, group, "squared_error", setting, seed)
            target = Target("gap 1e-9 to weighted least squares", 1e-9, 1)
            yield from reach(
                ("wide table, linear regression", setting, seed),
                federation,
                FedMinMaxFast(optimality_gap=0.0),
                (target,),
                partial(_least_squares_gap, table),
            )


def _cases(seeds: range) -> Iterator[tuple[str, int]]:
    return ((setting, seed) for setting in SETTINGS for seed in seeds)


def _federation(
    x: Tensor, y: Tensor, group: Tensor, loss: str, setting: str, seed: int
) -> Simulation:
    outputs = 1 if loss == "squared_error" else 2
    torch.manual_seed(seed)
    model = linear(x.shape[1], outputs).to(x.dtype)
    parts = rows_of_sites(setting, group, SITES, seed)
    sites = [(x[part], y[part], group[part]) for part in parts]
    return Simulation(model, LOSSES_BY_NAME[loss], sites, ridge=_ridge_of(loss))


def _ridge_of(loss: str) -> float:
    return RIDGE if loss == "cross_entropy" else 0.0


def _gap(done: Round[Any]) -> float:
    """The certificate's relative gap."""
    state = done.progress.state
    return float((state.upper - state.lower) / state.upper)


def _lowest(done: Round[Any]) -> float:
    """The lowest worst training risk so far, with its penalty."""
    return float(done.progress.state.upper)


def _least_squares_gap(table: WideTable, done: Round[Any]) -> float:
    """Weighted least squares by numpy is below every model's worst group: how far is ours?"""
    rows = np.hstack([table.standardised, np.ones((len(table.x), 1))])
    counts = np.bincount(table.group)
    ours = done.parameters().double().numpy()

    def risks(slopes: Numbers) -> Numbers:
        squares = (rows @ slopes - table.quantity) ** 2
        return np.asarray(np.bincount(table.group, squares) / counts)

    weights = done.weights.numpy()
    root = np.sqrt((weights / counts)[table.group])
    least = np.linalg.lstsq(rows * root[:, None], table.quantity * root, rcond=None)[0]
    lower = float(weights @ risks(least))
    return float(risks(ours).max() / lower - 1.0)


def _pass_times(federation: Simulation) -> str:
    """Compare the cost of a question with one pass of Algorithm 1, measured in turns."""

    def ask(method: LocalMethod[Any] | OneStepMethod[Any]) -> None:
        start = federation.initial_parameters
        state = method.init(start, federation.census)
        federation.ask(method, method.order(state, RoundKey(0, 1)), federation.census.occupied)

    contestants = {
        "plain pass": Contestant(partial(ask, FedMinMax(0.1))),
        "sums by group with curvature": Contestant(partial(ask, FedMinMaxFast(optimality_gap=0.0))),
    }
    times = time_in_turns(contestants, repeats=3, threads=torch.get_num_threads())
    return ", ".join(f"{name} {np.median(seconds):.3f} s" for name, seconds in times.items())
