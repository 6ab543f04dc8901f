"""The tables of this experiment: three published ones, and synthetic ones of other shapes.

Categories are columns of zeros and ones; a missing number is 0 after standardising, with a flag.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from experiments.schools.tables import math_achieve, star
from fedminmax.data.adult import load_adult

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Features, targets (classes, or quantities) and groups; the same rows in the same order."""

    x: Matrix
    y: NDArray[np.generic]
    group: NDArray[np.generic]
    classifies: bool


def adult() -> Problem:
    """Return both published files together."""
    data = load_adult()
    parts = (data.train, data.test)
    return Problem(
        torch.cat([part.x for part in parts]).numpy().astype(np.float64),
        torch.cat([part.y for part in parts]).numpy(),
        torch.cat([part.group for part in parts]).numpy(),
        classifies=True,
    )


def schools(name: str) -> Problem:
    """Return one of the two tables of experiments/schools, with maths scores as target."""
    if name == "star":
        frame, numbers = star(), ["teacher_years", "born"]
        words = ["grade", "class_type", "teacher_degree", "teacher_career", "school_type"]
        groups = ["ethnicity", "lunch"]
    else:
        frame, words, groups = math_achieve(), ["sector"], ["minority", "sex"]
        numbers = ["ses", "school_ses", "size", "academic_track", "discrimination"]
    known = frame[numbers].astype(float)
    gaps = known.isna()
    parts = [known.fillna(known.mean()), pd.get_dummies(frame[words]), gaps.loc[:, gaps.any()]]
    crossed = frame[groups].fillna("?").agg(" / ".join, axis=1)
    return Problem(
        pd.concat(parts, axis=1).to_numpy().astype(np.float64),
        frame["math"].to_numpy().astype(np.float64),
        crossed.to_numpy().astype(str),
        classifies=False,
    )


def synthetic(shape: str, seed: int) -> Problem:
    """Draw two classes and two groups whose effects differ; numbers are of several shapes."""
    generator = np.random.default_rng(seed + 1000)
    rows, columns = {"many columns": (3000, 100), "noise": (1500, 30)}.get(shape, (4000, 8))
    x = generator.normal(size=(rows, columns))
    group = (generator.random(rows) < (0.05 if shape == "rare group" else 0.35)).astype(int)
    side = np.where(group == 1, -1.0, 1.0)
    x, need = EFFECTS[shape](x, side, generator)
    y = (generator.random(rows) < 1 / (1 + np.exp(-1.5 * need))).astype(int)
    return Problem(x, y, group, classifies=True)


Effect = Callable[[Matrix, Matrix, np.random.Generator], tuple[Matrix, Matrix]]


def _heavy(spread: float) -> Effect:
    def drawn(x: Matrix, side: Matrix, _: np.random.Generator) -> tuple[Matrix, Matrix]:
        need = np.tanh(1.5 * x[:, 0]) + 0.7 * x[:, 1] * side - 0.5 * (np.abs(x[:, 2]) < 0.7)
        return np.exp(spread * x) * 10.0 ** np.arange(-3, 5), need

    return drawn


def _many_zeros(x: Matrix, side: Matrix, draw: np.random.Generator) -> tuple[Matrix, Matrix]:
    paid = np.where(draw.random(x.shape) < 0.7, 0.0, 1000 * np.exp(x))
    need = 1.2 * (paid[:, 0] > 0) + np.log1p(paid[:, 1]) / 8 * side - 0.6 * (paid[:, 2] > 1500)
    return paid, need - need.mean()


def _no_variance(x: Matrix, side: Matrix, draw: np.random.Generator) -> tuple[Matrix, Matrix]:
    far = draw.standard_t(1.2, size=x.shape)
    return far, 1.2 * np.tanh(far[:, 0]) + 0.56 * np.clip(far[:, 1], -2, 2) * side


def _curves(x: Matrix, side: Matrix, _: np.random.Generator) -> tuple[Matrix, Matrix]:
    return x, np.sin(2 * x[:, 0]) + np.abs(x[:, 1]) * side + 0.5 * x[:, 2] ** 2 - 0.5


def _years(x: Matrix, side: Matrix, _: np.random.Generator) -> tuple[Matrix, Matrix]:
    years = np.round(1950 + 15 * x)
    return years, np.abs(years[:, 0] - 1950) / 15 - 1 + (years[:, 1] - 1950) / 30 * side


EFFECTS: dict[str, Effect] = {
    "curves": _curves,
    "rare group": _curves,
    "years": _years,
    "many zeros": _many_zeros,
    "heavy tails": _heavy(1.5),
    "very heavy tails": _heavy(2.5),
    "infinite variance": _no_variance,
    "interactions": lambda x, side, _: (
        x,
        x[:, 0] * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] * side + 0.5 * x[:, 4],
    ),
    "straight lines": lambda x, side, _: (x, x[:, 0] - 0.5 * x[:, 1] + 0.5 * x[:, 2] * side),
    "many columns": lambda x, side, _: (
        x,
        x[:, :10] @ np.linspace(1, 0.1, 10) + 0.5 * np.abs(x[:, 10]) * side,
    ),
    "noise": lambda x, _, __: (x, np.zeros(len(x))),
}
PUBLISHED = ("adult", "star", "math_achieve")
NAMES = (*PUBLISHED, *EFFECTS)


def table(name: str, seed: int) -> Problem:
    """Return a table by its name; published ones do not depend on the seed."""
    if name == "adult":
        return adult()
    return schools(name) if name in PUBLISHED else synthetic(name, seed)
