"""What a limit on harm says before and after training."""

from pathlib import Path

import numpy as np
import pytest

from fedminmax.core.errors import InputError
from fedminmax.findings.records import Results
from fedminmax.findings.training import could_be_better
from fedminmax.runs.train import train_tables

CONFIG = """
[data]
file = "table.csv"
site_column = "s"
held_out = 0.3
target = "y"
classes = ["a", "b"]

[groups]
columns = ["g"]


[features.x]
kind = "numeric"
[features.z]
kind = "numeric"

[model]
kind = "logistic"

[method]
"""


def trained(folder: Path, method: str) -> Results:
    rng = np.random.default_rng(0)
    g = rng.random(900) < 0.3
    x, z = rng.normal(size=(2, 900))
    y = rng.random(900) < 1.0 / (1.0 + np.exp(np.where(g, 2.0, -1.0) * x - 0.3 * z))
    lines = [
        f"{a:.3f},{b:.3f},{'s' if c else 't'},{'b' if d else 'a'},{number % 2}"
        for number, (a, b, c, d) in enumerate(zip(x, z, g, y, strict=True))
    ]
    (folder / "table.csv").write_text("\n".join(["x,z,g,y,s", *lines]), encoding="utf-8")
    path = folder / "fedminmax.toml"
    path.write_text(CONFIG + method, encoding="utf-8")
    return train_tables(path, folder=folder / "run").results


def test_limits_that_no_model_keeps_to_are_replaced_by_the_nearest_pair(tmp_path: Path) -> None:
    results = trained(tmp_path, "tolerance = 0.005\nmax_harm = 0.001\n")
    proof = results.proof
    assert proof is not None
    assert proof.harm_raised
    assert "The nearest pair" in could_be_better(results)
    assert "within the nearest pair of limits the mean" in could_be_better(results)


def test_the_lowest_mean_is_said_to_be_that_within_both_limits(tmp_path: Path) -> None:
    results = trained(tmp_path, "tolerance = 0.005\nmax_harm = 0.5\n")
    assert "within the tolerance and max_harm the mean" in could_be_better(results)


def test_without_a_plain_model_there_is_nothing_to_measure_harm_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"max_harm = 0\.01 is measured from the plain model"):
        trained(tmp_path, 'max_harm = 0.01\nbaseline = "none"\n')


def test_a_tolerance_without_second_derivatives_is_said_to_have_no_effect(tmp_path: Path) -> None:
    results = trained(tmp_path, "tolerance = 0.005\ncurvature = false\nrounds = 3\n")
    assert any("tolerance = 0.005 has no effect" in note for note in results.notes)
