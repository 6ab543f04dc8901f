"""A user's mistake gives one line that says what came and what to do."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fedminmax import FedAvg, FedMinMaxClassifier, FedMinMaxRegressor
from tests.complaints import complaint_of

X = np.arange(8.0).reshape(4, 2) ** 1.5
Y = ["no", "yes", "no", "yes"]
SEX = ["f", "f", "m", "m"]


def complaint(model: Any = None, y: Any = Y, **metadata: Any) -> str:
    return complaint_of(lambda: (model or FedMinMaxClassifier()).fit(X, y, **metadata))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"model": "tree"}, "model = 'tree'; give additive, linear, mlp, or None"),
        ({"model": "linear", "hidden": (8,)}, "other models have none"),
        ({"model": "mlp"}, "an mlp needs hidden layers such as (64, 64)"),
        ({"hidden": (3, 0)}, "width = 0"),
        (
            {"model": "linear", "ridge": -1.0},
            "ridge = -1; give zero or a positive number, such as 1e-4",
        ),
        ({"ridge": 0.0}, "ridge = 0; additive models need a small one; give 1e-6, or None"),
        ({"ridge": -1.0}, "ridge = -1; additive models need a small one"),
        ({"pairs": -1}, "pairs = -1"),
        ({"smoothness": 0}, "smoothness = 0; give a positive number, such as 1"),
        ({"model": "linear", "pairs": 3}, "pairs = 3 is for additive models"),
        ({"hidden": (3,), "smoothness": 2.0}, "smoothness = 2.0 is for additive models"),
        ({"ridge": 0.1, "hidden": (3,)}, "ridge = 0.1 is a penalty for linear models"),
        ({"iterate": "first"}, "'first'; give average, last, tail_average, best, or None"),
        ({"iterate": "best"}, "iterate = 'best' needs validation rows; set validation=0.1"),
        ({"patience": 3}, "patience = 3 needs validation rows"),
        ({"validation": 0.9}, "validation = 0.9; give the share of validation rows"),
        ({"loss": "hinge"}, "'hinge'; give 'brier' or 'cross_entropy'"),
        ({"device": "abacus"}, "device abacus cannot be used here"),
        (
            {"min_weight": 0.7, "keep_share": 0.3},
            "1.4, and there is 0.7; choose",
        ),
        ({"min_weight": 0.7}, "min_weight at most 0.5"),
        ({"tolerance": -0.01}, "tolerance = -0.01; give a share"),
        ({"tolerance": 0.01, "keep_share": 0.3}, "give one of them"),
        ({"tolerance": 0.01, "learning_rate": 0.1}, "drop the rate, or tolerance"),
        ({"learning_rate": -1.0}, "learning_rate = -1"),
        (
            {"method": FedAvg(), "min_weight": 0.1},
            "min_weight = 0.1 was given together with a method",
        ),
        (
            {"method": FedAvg(), "optimality_gap": 0.1},
            "optimality_gap = 0.1 was given together with a method",
        ),
        (
            {"adversary_rate": 0.1, "optimality_gap": 0.1},
            "optimality_gap = 0.1 was given with a rate, which is for Algorithm 1",
        ),
        ({"optimality_gap": -1.0}, "optimality_gap = -1"),
        ({"iterate": "last"}, "iterate = 'last' was given with a method that chooses its model"),
    ],
)
def test_settings(settings: dict[str, Any], words: str) -> None:
    assert words in complaint(FedMinMaxClassifier(**settings), sensitive_features=SEX)


def test_one_class() -> None:
    assert "one class, 'yes', in all 4 rows" in complaint(y=["yes"] * 4)


@pytest.mark.parametrize("name", ["sensitive_features", "sites"])
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["a", "b"], "has shape (2,) for 4 rows"),
        (["a", None, "b", "a"], "is missing in 1 of 4 rows, first in row 1"),
        ([1.0, 2.0, float("nan"), 1.0], "is missing in 1 of 4 rows, first in row 2"),
    ],
)
def test_groups_and_sites(name: str, column: list[object], words: str) -> None:
    assert words in complaint(**{name: column})
    assert name in complaint(FedMinMaxRegressor(), y=[1.0, 2.0, 3.0, 4.0], **{name: column})


def test_without_scikit_learn_the_message_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fedminmax\n"
        "try:\n"
        "    fedminmax.FedMinMaxClassifier\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["sklearn.base is needed: pip install 'fedminmax[sklearn]'"]
