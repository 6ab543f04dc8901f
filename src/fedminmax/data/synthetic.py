"""The paper's synthetic data, with its analytic optimum.

Papadaki et al. 2021, Appendix B: A ~ Ber(1/2), X ~ N(0, 1), and Y given X and A = a is
Bernoulli with probability u_a^l for x <= 0 and u_a^h for x > 0.

| symbol                             | name             |
|------------------------------------|------------------|
| (u_a^l, u_a^h)                     | PROBABILITIES[a] |
| m (weight of group 1 in a mixture) | weight           |

A model sees only x. With weight m on group 1 the optimal one predicts
(1 - m) u_0 + m u_1 on each side, and then, in Brier risk summed over both classes,
r_0(m) = 0.45 + 0.13 m^2 and r_1(m) = 0.18 + 0.13 (1 - m)^2. Lowest mean risk: m = 1/2,
(0.4825, 0.2125). Minimax: m = 0, (0.45, 0.31), a corner where the risks remain unequal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose, numpy_stream

GROUP_NAMES = ("group 0", "group 1")
PROBABILITIES = ((0.3, 0.6), (0.1, 0.9))


@dataclass(frozen=True)
class GroupRisks:
    """The Brier risks of the two groups."""

    group_0: float
    group_1: float

    @property
    def worst(self) -> float:
        """The higher of the two."""
        return max(self.group_0, self.group_1)

    @property
    def best(self) -> float:
        """The lower of the two."""
        return min(self.group_0, self.group_1)


def draw_synthetic(rows: int, seed: int) -> Examples:
    """Draw rows, exactly half of them from each group, so that ESG splits are exact.

    >>> draw_synthetic(6, seed=0).group.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    if rows < 2 or rows % 2:
        raise InputError(f"rows = {rows}; give a positive even number (half for each group)")
    generator = numpy_stream(seed, Purpose.DATA)
    group = np.repeat([0, 1], rows // 2)
    x = generator.standard_normal(rows)
    probability = np.asarray(PROBABILITIES)[group, (x > 0).astype(int)]
    y = (generator.random(rows) < probability).astype(np.int64)
    return Examples(
        torch.from_numpy(x).to(torch.float32).unsqueeze(1),
        torch.from_numpy(y),
        torch.from_numpy(group),
    )


def risks_of_sides(low: float, high: float) -> GroupRisks:
    """Exact risks of the model that gives Y = 1 probability ``low`` for x <= 0, else ``high``.

    >>> risks_of_sides(0.3, 0.6)
    GroupRisks(group_0=0.45, group_1=0.31)
    """
    risks = [
        sum(
            (predicted - true) ** 2 + true * (1 - true)
            for predicted, true in zip((low, high), PROBABILITIES[group], strict=True)
        )
        for group in (0, 1)
    ]
    return GroupRisks(round(risks[0], 12), round(risks[1], 12))


def optimal_risks(weight: float) -> GroupRisks:
    """Exact risks of the best model when group 1 has this weight and group 0 the rest.

    >>> optimal_risks(0.5)
    GroupRisks(group_0=0.4825, group_1=0.2125)
    """
    sides = zip(*PROBABILITIES, strict=True)
    low, high = ((1 - weight) * side_0 + weight * side_1 for side_0, side_1 in sides)
    return risks_of_sides(low, high)


MINIMAX_RISKS = optimal_risks(0.0)
MEAN_RISKS = optimal_risks(0.5)


def qffl_risks(q: float) -> GroupRisks:
    """Exact risks of the minimiser of r_0^{q+1} + r_1^{q+1}: q-FFL with one group per site.

    >>> qffl_risks(0.0) == MEAN_RISKS
    True
    """
    low, high = 0.0, 0.5
    for _ in range(60):  # the derivative in m, m r_0^q - (1 - m) r_1^q, rises: bisect its zero
        weight = (low + high) / 2
        risks = optimal_risks(weight)
        if weight * risks.group_0**q < (1 - weight) * risks.group_1**q:
            low = weight
        else:
            high = weight
    return optimal_risks((low + high) / 2)


def expected_risks(predict: Callable[[Tensor], Tensor], points: int = 20_000) -> GroupRisks:
    """Expected Brier risks of a classifier, with y integrated exactly and x by quadrature.

    ``predict`` maps x [n, 1] in float32 to two logits per row. The points are the mid-quantiles of
    N(0, 1): for predictions of bounded variation the error is at most variation / points.
    """
    probability, sides = _on_quantiles(predict, points)
    risks = 2.0 * ((probability - sides) ** 2 + sides * (1 - sides)).mean(dim=1)
    if not bool(torch.isfinite(risks).all()):
        return GroupRisks(math.nan, math.nan)
    return GroupRisks(float(risks[0]), float(risks[1]))


@dataclass(frozen=True)
class ExpectedRates:
    """By group: correct answers, answers 1, and answers 1 among those whose label is 1."""

    accuracies: tuple[float, ...]
    positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]


def expected_rates(predict: Callable[[Tensor], Tensor], points: int = 20_000) -> ExpectedRates:
    """Return the expected rates of a classifier's answers, with y integrated exactly.

    x does not depend on the group, so neither does the rate of answers 1.
    """
    probability, sides = _on_quantiles(predict, points)
    positive = (probability > 0.5).to(torch.float64)
    correct = positive * sides + (1 - positive) * (1 - sides)
    hits = (positive * sides).mean(dim=1) / sides.mean(dim=1)
    return ExpectedRates(
        tuple(correct.mean(dim=1).tolist()),
        (float(positive.mean()),) * len(sides),
        tuple(hits.tolist()),
    )


def _on_quantiles(predict: Callable[[Tensor], Tensor], points: int) -> tuple[Tensor, Tensor]:
    """Return the predicted probability of label 1 at each point, and the true ones [2, points]."""
    x = torch.special.ndtri((torch.arange(points, dtype=torch.float64) + 0.5) / points)
    with torch.no_grad():
        probability = torch.softmax(predict(x.float().unsqueeze(1)).double(), dim=1)[:, 1]
    return probability, torch.tensor(PROBABILITIES, dtype=torch.float64)[:, (x > 0).long()]
