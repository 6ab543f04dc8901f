"""Minimax by another solver: the highest of several smooth functions, over their epigraph."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from tests.problems import Vector

Functions = Callable[[Vector], tuple[Vector, Vector]]
"""Maps a point to all functions' values [A] and slopes [A, f]."""


def lowest_maximum(functions: Functions, start: Vector, cone: Vector | None = None) -> float:
    """Minimise t with q_a(x) <= t, an ordinary smooth programme, by SLSQP.

    With a ``cone``, cone x >= 0 holds, too, at the start as well.
    """

    def room(both: Vector) -> Vector:
        return np.asarray(both[-1] - functions(both[:-1])[0])

    def slope_of_room(both: Vector) -> Vector:
        values, slopes = functions(both[:-1])
        both_slopes: Vector = np.c_[-slopes, np.ones(len(values))]
        return both_slopes

    def height(both: Vector) -> float:
        return float(both[-1])

    def slope_of_height(both: Vector) -> Vector:
        slope: Vector = np.r_[np.zeros(len(both) - 1), 1.0]
        return slope

    constraints: list[NonlinearConstraint | LinearConstraint]
    constraints = [NonlinearConstraint(room, 0.0, np.inf, jac=slope_of_room)]
    if cone is not None:
        lines = np.c_[cone, np.zeros(len(cone))]
        constraints.append(LinearConstraint(lines, 0.0, np.inf))
    found = minimize(
        height,
        np.r_[start, functions(start)[0].max()],
        jac=slope_of_height,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    return float(functions(np.asarray(found.x[:-1]))[0].max())
