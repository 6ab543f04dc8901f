"""Is the verdict "converged" right? Runs on a census-like table, compared with their true optimum.

    python -m benchmarks.convergence_verdicts > benchmarks/results/convergence_verdicts.md

The table has numbers made of five factors, which are nearly collinear, and one-hot columns of which
most are rare: descent is slow in most directions. Groups differ in their coefficients and have from
50 to 10,000 rows. The optimum is from L-BFGS in float64, for the worst group on a soft maximum
that is sharpened step by step.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedminmax.core.bounds import safe_learning_rate
from fedminmax.core.convergence import Convergence, judge_convergence
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear_or_mlp
from fedminmax.methods.card import goal_of
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.studies.study import StudyMethod
from fedminmax.training.round_record import record_round
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]

SIZES = (50, 120, 250, 500, 900, 1400, 1900, 2200, 2680, 10_000)
FACTORS, NUMBERS, CATEGORICAL, CATEGORIES = 5, 20, 12, 15
ROUNDS = (100, 500, 5000)
SHARPNESS = (30, 100, 300, 1000, 3000, 10_000, 30_000)


def census_table(seed: int) -> tuple[Numbers, Places, Places]:
    """Draw features, labels and groups."""
    draw = np.random.default_rng(seed)
    rows, groups = sum(SIZES), len(SIZES)
    group = np.repeat(np.arange(groups), SIZES)
    draw.shuffle(group)
    factors = draw.standard_normal((rows, FACTORS))
    factors += 0.6 * draw.standard_normal((groups, FACTORS))[group]
    numbers = factors @ draw.standard_normal((FACTORS, NUMBERS))
    numbers += 0.05 * draw.standard_normal((rows, NUMBERS))
    columns = [(numbers - numbers.mean(0)) / numbers.std(0)]
    shares = 1 / np.arange(1, CATEGORIES + 1) ** 1.5
    for _ in range(CATEGORICAL):
        usual = draw.permutation(CATEGORIES)[:groups]
        category = draw.choice(CATEGORIES, size=rows, p=shares / shares.sum())
        category = np.where(draw.random(rows) < 0.3, usual[group], category)
        columns.append(np.eye(CATEGORIES)[category])
    x = np.concatenate(columns, axis=1)
    slopes = 0.8 * draw.standard_normal(x.shape[1])
    logits = x @ slopes + draw.standard_normal(groups)[group] * 0.7
    logits += (x * (0.35 * draw.standard_normal((groups, x.shape[1])))[group]).sum(1)
    logits = 2 * (logits - logits.mean()) / logits.std()
    return x, (draw.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int64), group


def optimum(x: Numbers, y: Places, group: Places, *, minimax: bool) -> float:
    """Return the lowest worst-group Brier risk, or the lowest mean."""
    rows = np.hstack([x, np.ones((len(x), 1))])
    counts = np.bincount(group)

    def risk(slopes: Numbers, sharpness: float) -> tuple[float, Numbers]:
        share = 1 / (1 + np.exp(-np.clip(rows @ slopes, -500, 500)))
        risks = np.bincount(group, 2 * (share - y) ** 2) / counts
        pull = 4 * (share - y) * share * (1 - share)
        weights = counts / len(x)
        value = float(weights @ risks)
        if minimax:
            raised = np.exp(sharpness * (risks - risks.max()))
            weights = raised / raised.sum()
            value = float(risks.max() + np.log(raised.sum()) / sharpness)
        return value, rows.T @ (pull * (weights / counts)[group])

    slopes, value = np.zeros(rows.shape[1]), 0.0
    for sharpness in SHARPNESS if minimax else (1,):
        found = minimize(
            partial(risk, sharpness=sharpness),
            slopes,
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 50},
        )
        slopes, value = np.asarray(found.x), float(found.fun)
    share = 1 / (1 + np.exp(-rows @ slopes))
    risks = np.bincount(group, 2 * (share - y) ** 2) / counts
    return float(risks.max()) if minimax else value


def main() -> None:
    """Print a line for each run and number of rounds."""
    x, y, group = census_table(seed=0)
    rows = torch.tensor(x, dtype=torch.float32)
    labels, groups = torch.tensor(y), torch.tensor(group)
    rate = safe_learning_rate(brier_loss, rows, groups, linear=True)
    print("| method | rounds | true distance | estimate | verdict |\n|---|---|---|---|---|")
    plain = FedAvg(learning_rate=rate, epochs=1, batch_size=None)
    methods: tuple[StudyMethod, ...] = (FedMinMax(rate), plain)
    for method in methods:
        goal = goal_of(method)
        best = optimum(x, y, group, minimax=goal.minimax)
        model = linear_or_mlp(x.shape[1], 2, ())
        federation = Simulation(model, brier_loss, [(rows, labels, groups)])
        log = []
        for done in train(federation, method, rounds=max(ROUNDS), seed=0):
            log.append(record_round(done, method, seconds=0.0))
            if done.number not in ROUNDS:
                continue
            answer = federation.model(done.parameters(Iterate.TAIL_AVERAGE))
            with torch.no_grad():
                losses = brier_loss(answer(rows), labels).double().numpy()
            by_group = np.bincount(group, losses) / np.array(SIZES)
            risk = by_group.max() if goal.minimax else losses.mean()
            found = judge_convergence(log, SIZES, goal, answer=Iterate.TAIL_AVERAGE)
            print(_line(method.name, found, float(risk / best - 1)), flush=True)


def _line(name: str, found: Convergence, distance: float) -> str:
    share = (found.remaining or 0.0) / (found.risk or 1.0)
    verdict = "converged" if found.converged else f"not converged ({found.reason})"
    return f"| {name} | {found.rounds:,} | {distance:.2%} | {share:.2%} | {verdict} |"


if __name__ == "__main__":
    main()
