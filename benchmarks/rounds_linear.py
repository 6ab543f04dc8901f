"""Rounds to the minimax answer of linear models, checked against independent solvers.

Adult has the published files' rows; the wide table is made for this (``WideTable``). The evidence:
for cross-entropy with a ridge the certificate of the run itself, compared with L-BFGS on a soft
maximum; for Brier, which is not convex, only that solver; for squared error least squares with the
run's final weights, a lower bound for all models. Variants of the server without one of its
ingredients show what each is worth: it gets fewer sums, or starts with another trust region.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.independent_minimax import LogisticProblem, Numbers, solve_mean, solve_minimax
from benchmarks.target_rows import SETTINGS, Reached, Target, reach
from benchmarks.timing import Contestant, time_in_turns
from fedminmax.core.bounds import safe_learning_rate
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.models import linear
from fedminmax.core.workspace import Workspace
from fedminmax.data.adult import load_adult
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import LocalMethod, OneStepMethod, SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.second_order_server import MIN_DAMPING
from fedminmax.methods.shared.second_order_state import FIRST_DAMPING, SecondOrderState
from fedminmax.methods.shared.servers import LookAheadState
from fedminmax.studies.study import rows_of_sites
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train

RIDGE = 1e-4
SITES = 40
ALGORITHM_1_ROUNDS = 3000
# Adult, Brier, logistic: the lowest worst training risk of these rounds.
ADULT_ROUND_3000 = 0.25726
WIDE_ROWS, WIDE_COLUMNS = 200_000, 400
Places = NDArray[np.int64]

GROUPS, FACTORS = 10, 20


@dataclass(frozen=True, eq=False)
class WideTable:
    """Raw features, labels 0 and 1, a quantity, and groups, in random order.

    No method was tuned on it. Columns mix 20 factors and add their own noise; their scales and
    offsets span five powers of ten. Groups have from about 100 rows to half of all, and their own
    coefficients besides common ones, so that a model of the mean is bad for the small groups.
    """

    x: Numbers
    label: Places
    quantity: Numbers
    group: Places

    @property
    def standardised(self) -> Numbers:
        """Features scaled as for the product's tables: mean 0, deviation 1."""
        scaled: Numbers = (self.x - self.x.mean(axis=0)) / self.x.std(axis=0)
        return scaled


def wide_table(rows: int, columns: int, seed: int) -> WideTable:
    """Draw a table."""
    draw = np.random.default_rng(seed)
    sizes = np.geomspace(100, rows / 2, GROUPS)
    sizes[1:-1] *= (rows - sizes[0] - sizes[-1]) / sizes[1:-1].sum()
    group = np.repeat(np.arange(GROUPS), sizes.astype(int))
    group = np.concatenate([group, np.full(rows - len(group), GROUPS - 1)])
    draw.shuffle(group)
    hidden = draw.standard_normal((rows, FACTORS))
    x = hidden @ draw.standard_normal((FACTORS, columns)) / np.sqrt(FACTORS)
    x += 0.5 * draw.standard_normal((rows, columns))
    common = draw.standard_normal(columns)
    own = draw.standard_normal((GROUPS, columns))
    output = x @ common
    for number in range(GROUPS):
        here = group == number
        output[here] += 0.7 * x[here] @ own[number]
    output = 2.0 * output / np.sqrt(columns) + 0.5 * draw.standard_normal(GROUPS)[group]
    label = (draw.random(rows) < 1 / (1 + np.exp(-output))).astype(np.int64)
    quantity = output + draw.standard_normal(rows) * np.linspace(0.5, 2.0, GROUPS)[group]
    x *= np.geomspace(1e-2, 1e3, columns)
    x += np.geomspace(1e-1, 1e3, columns)
    return WideTable(x, label, quantity, group)


class Missing(Enum):
    """What is removed from the server."""

    NOTHING = ""
    CORRELATIONS = ", curvature of single columns alone"
    OWN_CURVATURE = ", one curvature for all groups"
    FRESH_CURVATURE = ", curvature of round 1 throughout"
    REGION = ", without a trust region"
    ADAPTING = ", trust region of round 1 throughout"


@dataclass(frozen=True)
class AblatedLinear:
    """FedMinMaxFast for a linear model, without one ingredient."""

    missing: Missing
    learning_rate: float = 0.001
    name: str = "ablated"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    @property
    def _whole(self) -> FedMinMaxFast:
        return FedMinMaxFast(optimality_gap=0.0)

    def init(self, parameters: Tensor, census: Census) -> LookAheadState:
        """As the whole method."""
        return self._whole.init(parameters, census)

    def order(self, state: LookAheadState, key: RoundKey) -> Order:
        """As the whole method."""
        return self._whole.order(state, key)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """As the whole method."""
        return self._whole.local(order, site, workspace)

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """As the whole method."""
        return self._whole.row_sums(order, site, workspaces)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """As the whole method."""
        return self._whole.expected(order, sender, reply)

    def update(self, state: LookAheadState, total: Sums) -> LookAheadState:
        """Pass the server the reduced sums and trust region."""
        assert isinstance(state, SecondOrderState)
        reported = replace(total, statistics=self._curvature(state, total).flatten())
        if self.missing is Missing.REGION:
            state = replace(state, damping=MIN_DAMPING)
        if self.missing is Missing.ADAPTING:
            state = replace(state, damping=FIRST_DAMPING)
        return self._whole.update(state, reported)

    def _curvature(self, state: SecondOrderState, total: Sums) -> Tensor:
        rows = total.group_count[:, None]
        packed = total.statistics.reshape(len(rows), -1)
        if self.missing is Missing.CORRELATIONS:
            return packed * _on_diagonal(state.structure)
        if self.missing is Missing.OWN_CURVATURE:
            return rows * (packed.sum(dim=0) / rows.sum())
        if self.missing is Missing.FRESH_CURVATURE and state.rounds > 0:
            return rows * state.curvature
        return packed


def _on_diagonal(structure: LinearStructure) -> Tensor:
    """Return 1 for each packed number of a block that is on the block's diagonal, else 0."""
    rows, columns = torch.tril_indices(structure.columns, structure.columns)
    own: Tensor = rows == columns
    return own.to(torch.float64).repeat(structure.blocks)


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
