"""Three hospitals' files with a binary, a three-class and a numeric target, and configurations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

HOSPITALS = {"north": 90, "south": 70, "west": 50}
TASKS = ("ill", "stage", "cost")
TARGETS = {
    "ill": 'target = "ill"\nclasses = ["no", "yes"]',
    "stage": 'target = "stage"\nclasses = ["low", "mid", "high"]',
    "cost": 'target = "cost"\ntask = "regression"',
}
FEATURES = """
[features.age]
kind = "numeric"
[features.dose]
kind = "numeric"
[features.ward]
kind = "category"
categories = ["a", "b", "c"]
"""


def draw_patients(rows: int, seed: int) -> pl.DataFrame:
    """Patients whose dose works the other way round for women, who are fewer."""
    generator = np.random.default_rng(seed)
    sex = np.where(generator.random(rows) < 0.3, "Female", "Male")
    age, dose = generator.integers(20, 90, rows), generator.normal(size=rows)
    need = np.where(sex == "Female", -1, 1) * dose + (age - 55) / 20
    noisy = need + generator.normal(size=rows)
    return pl.DataFrame(
        {
            "age": age,
            "sex": sex,
            "dose": dose,
            "ward": generator.choice(["a", "b", "c"], rows),
            "ill": np.where(generator.random(rows) < 1 / (1 + np.exp(-need)), "yes", "no"),
            "stage": np.array(["low", "mid", "high"])[np.digitize(noisy, [-0.7, 0.7])],
            "cost": 1000 + 200 * noisy,
        }
    )


def write_hospitals(folder: Path) -> None:
    """Write a file for each hospital, one of all of them, and one of further patients."""
    frames = {
        name: draw_patients(rows, seed) for seed, (name, rows) in enumerate(HOSPITALS.items())
    }
    for name, frame in frames.items():
        frame.write_csv(folder / f"{name}.csv")
    owned = [frame.with_columns(hospital=pl.lit(name)) for name, frame in frames.items()]
    pl.concat(owned).write_csv(folder / "all.csv")
    draw_patients(80, seed=9).write_csv(folder / "later.csv")


def write_config(
    folder: Path,
    target: str = "ill",
    *,
    data: str = "",
    sites: Mapping[str, str] | None = None,
    model: str = "",
    method: str = "",
    name: str = "fedminmax",
) -> Path:
    """Write a configuration for these hospitals with further lines in some of its sections.

    If its method is not named, it is Algorithm 1, which takes as many rounds as it is told.
    """
    files = {hospital: f"{hospital}.csv" for hospital in HOSPITALS} if sites is None else sites
    kind = "linear" if target == "cost" else "logistic"
    method = method or "rounds = 30"
    if "name = " not in method:
        method = f'name = "fedminmax"\n{method}'
    lines = [
        *["[data]", TARGETS[target], data],
        *(["[data.sites]", *(f'{name} = "{file}"' for name, file in files.items())] * bool(files)),
        *["[groups]", 'columns = ["sex"]', "minimum_size = 5", FEATURES],
        *["[model]", model or f'kind = "{kind}"', "[method]", method],
    ]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def results_of(folder: Path) -> dict[str, Any]:
    """A run's results but for its time, which no two runs share."""
    content: dict[str, Any] = json.loads((folder / "results.json").read_text())
    del content["seconds"]
    return content


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """A run's rounds but for their times."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
