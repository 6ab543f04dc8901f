"""Three clinics' files as a new user has them, which a test changes column by column."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

CLINICS = ("north", "south", "west")
INIT = ["init", "north.csv", "south.csv", "west.csv", "--target", "state", "--groups", "sex"]
Change = Callable[[str, pl.DataFrame], pl.DataFrame]


def draw_clinic(rows: int, seed: int) -> pl.DataFrame:
    """Patients whose age and dose tell, not too well, whether they are ill."""
    generator = np.random.default_rng(seed)
    age, dose = generator.integers(18, 90, rows), generator.normal(20, 5, rows).round(2)
    need = (age - 54) / 18 + (dose - 20) / 5
    return pl.DataFrame(
        {
            "age": age,
            "sex": generator.choice(["female", "male"], rows),
            "dose": dose,
            "ward": generator.choice(["red", "green", "blue"], rows),
            "state": np.where(generator.random(rows) < 1 / (1 + np.exp(-need)), "ill", "well"),
        }
    )


def write_clinics(folder: Path, change: Change | None = None, rows: int = 200) -> None:
    """Write a file for each clinic."""
    for seed, name in enumerate(CLINICS):
        frame = draw_clinic(rows, seed)
        (frame if change is None else change(name, frame)).write_csv(folder / f"{name}.csv")


def recoded(column: str, *codes: Sequence[str]) -> Change:
    """Write the sorted values of a column with each clinic's own codes."""

    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        values = sorted(frame[column].unique().to_list())
        own = dict(zip(values, codes[CLINICS.index(name)], strict=True))
        return frame.with_columns(pl.col(column).replace_strict(own))

    return change
