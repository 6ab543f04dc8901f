"""Make up the tables of three hospitals: the drug works the other way round for women.

usage: python make_tables.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

HOSPITALS = {"north": 900, "south": 600, "west": 500}


def write_table(path: Path, rows: int, generator: np.random.Generator) -> None:
    """Write one hospital's patients: sex, age, dose and outcome."""
    sex = generator.choice(["female", "male"], rows, p=[0.25, 0.75])
    age, dose = generator.integers(20, 90, rows), generator.normal(size=rows)
    effect = np.where(sex == "female", -1, 1) * dose + (age - 55) / 20
    well = generator.random(rows) < 1 / (1 + np.exp(-effect))
    lines = [
        f"{one},{years},{amount:.3f},{'well' if good else 'ill'}"
        for one, years, amount, good in zip(sex, age, dose, well, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["sex,age,dose,outcome", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draws = np.random.default_rng(0)
    for hospital, patients in HOSPITALS.items():
        write_table(Path(sys.argv[1], hospital, f"{hospital}.csv"), patients, draws)
