"""The tables of this experiment: five published ones, and synthetic ones of other shapes.

Every table has raw columns, as a user would give them: numbers with gaps, and categories as text.
``target``, ``group`` and ``site`` are columns, too, which no model sees as features. The census of
2018 and the hearts are read from a folder, because they do not come with the package:

- ``acs/AL.csv.gz`` ...: American Community Survey 2018, a file for each of 19 states, with the
  columns of the task ACSIncome (Ding, Hardt, Miller, Schmidt, NeurIPS 2021);
- ``heart/processed.cleveland.data`` ...: Heart Disease, four hospitals (Janosi, Steinbrunn,
  Pfisterer, Detrano, UCI Machine Learning Repository 1988).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.schools.tables import math_achieve, star
from fedminmax.data.adult import (
    CATEGORIES,
    NUMBERS,
    TEST,
    TRAIN,
    packed_folder,
    parse_rows,
    read_packed,
)

Matrix = NDArray[np.float64]
Effect = Callable[[Matrix, Matrix, np.random.Generator], tuple[Matrix, Matrix]]
ADULT_SITES = 40


@dataclass(frozen=True, eq=False)
class Problem:
    """A table with the columns target (0 and 1, or a quantity), group and site.

    ``real_sites`` says that the sites are those where the records came from.
    """

    frame: pl.DataFrame
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    classifies: bool
    real_sites: bool

    @property
    def target(self) -> NDArray[np.float64]:
        """The classes, 0 and 1, or quantities."""
        return self.frame["target"].to_numpy().astype(np.float64)


def adult(_: Path) -> Problem:
    """Return both published files together, at sites drawn at random; groups are sex x race."""
    parts = [parse_rows(read_packed(packed_folder(), file)) for file in (TRAIN, TEST)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    frame = pl.DataFrame({name: columns[name] for name in (*NUMBERS, *CATEGORIES)})
    draw = np.random.default_rng(0).permutation(len(frame)) % ADULT_SITES
    return Problem(
        frame.with_columns(
            pl.col(NUMBERS).cast(pl.Float64),
            target=pl.Series((columns["income"] == ">50K").astype(np.int64)),
            group=pl.Series(columns["sex"]) + " / " + pl.Series(columns["race"]),
            site=pl.lit("site-") + pl.Series(draw).cast(pl.String),
        ),
        NUMBERS,
        CATEGORIES,
        classifies=True,
        real_sites=False,
    )


def acs(folder: Path) -> Problem:
    """Return the incomes of 19 states; groups are sex x race."""
    numbers, categories = ("AGEP", "SCHL", "WKHP"), ("COW", "MAR", "OCCP", "POBP", "RELP")
    files = sorted((folder / "acs").glob("*.csv.gz"))
    frame = pl.concat(
        [pl.read_csv(file).with_columns(site=pl.lit(file.name[:2])) for file in files]
    )
    sex = pl.col("SEX").replace_strict({1.0: "Male", 2.0: "Female"})
    return Problem(
        frame.select(
            *numbers,
            pl.col(categories).cast(pl.Int64).cast(pl.String),
            "site",
            target=pl.col("PINCP").cast(pl.Int64),
            group=sex + " / race " + pl.col("RAC1P").cast(pl.Int64).cast(pl.String),
        ),
        numbers,
        categories,
        classifies=True,
        real_sites=True,
    )


def heart(folder: Path) -> Problem:
    """Return the patients of four hospitals; groups are sex x age below or above 55."""
    numbers = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
    categories = ("cp", "fbs", "restecg", "exang", "slope", "thal")
    files = sorted((folder / "heart").glob("processed.*.data"))
    frame = pl.concat(
        [
            pl.read_csv(file, null_values=["?", ""], infer_schema=False).with_columns(
                site=pl.lit(file.name.split(".")[1])
            )
            for file in files
        ]
    )
    sex = pl.col("sex").cast(pl.Float64).replace_strict({0.0: "Female", 1.0: "Male"})
    age = pl.col("age").cast(pl.Float64)
    return Problem(
        frame.select(
            pl.col(numbers).cast(pl.Float64),
            pl.col(categories).cast(pl.Float64).cast(pl.Int64).cast(pl.String),
            "site",
            target=(pl.col("target").cast(pl.Float64) > 0).cast(pl.Int64),
            group=sex + pl.when(age < 55).then(pl.lit(" / below 55")).otherwise(pl.lit(" / 55 up")),
        ).with_columns(chol=pl.when(pl.col("chol") > 0).then(pl.col("chol"))),  # 0 is missing
        numbers,
        categories,
        classifies=True,
        real_sites=True,
    )


def schools(name: str) -> Problem:
    """Return one of the two tables of experiments/schools, with maths scores as target."""
    numbers: tuple[str, ...]
    words: tuple[str, ...]
    if name == "star":
        data, numbers, groups = star(), ("teacher_years", "born"), ["ethnicity", "lunch"]
        words = ("grade", "class_type", "teacher_degree", "teacher_career", "school_type")
    else:
        data, words, groups = math_achieve(), ("sector",), ["minority", "sex"]
        numbers = ("ses", "school_ses", "size", "academic_track", "discrimination")
    frame = pl.DataFrame(
        {name: data[name].astype(float).to_numpy() for name in (*numbers, "math")},
        nan_to_null=True,
    )
    known = data.astype(object).where(data.notna(), None)
    texts = {name: pl.Series(known[name].tolist(), dtype=pl.String) for name in (*words, "school")}
    return Problem(
        frame.with_columns(
            **texts,
            group=pl.Series(data[groups].fillna("?").agg(" / ".join, axis=1).tolist()),
        ).rename({"math": "target", "school": "site"}),
        numbers,
        words,
        classifies=False,
        real_sites=True,
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
    numbers = tuple(f"x{number}" for number in range(columns))
    frame = pl.DataFrame(dict(zip(numbers, x.T, strict=True))).with_columns(
        target=pl.Series(y),
        group=pl.Series(np.array(["first", "second"])[group]),
        site=pl.Series(np.array(["one", "two"])[np.arange(rows) % 2]),
    )
    return Problem(frame, numbers, (), classifies=True, real_sites=False)


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
PUBLISHED: dict[str, Callable[[Path], Problem]] = {
    "adult": adult,
    "acs": acs,
    "heart": heart,
    "star": lambda _: schools("star"),
    "math_achieve": lambda _: schools("math_achieve"),
}
NAMES = (*PUBLISHED, *EFFECTS)


def table(name: str, seed: int, folder: Path) -> Problem:
    """Return a table by its name; published ones do not depend on the seed."""
    return PUBLISHED[name](folder) if name in PUBLISHED else synthetic(name, seed)
