"""Categories without a list: what sites agree on is what their pooled rows would give."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.data.tables.agreed_values import (
    BUCKETS,
    MAX_VALUES,
    MINIMUM_ROWS,
    TABLES,
    bucket_counts,
    common_values,
    complete_features,
    with_values,
)
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.parse_rows import FeatureRows, parse_features
from tests.complaints import complaint_of
from tests.data.tables.small_tables import table_of

OPEN = Schema(
    Target("y", ("0", "1")),
    (Feature("job", Kind.CATEGORY, from_sites=True),),
    (Protected("sex"),),
)
CONFIG = """
[data]
target = "y"
classes = ["0", "1"]
held_out = {held_out}
missing_values = ["", "?"]
[data.sites]
{sites}
[groups]
columns = ["sex"]
[features.job]
kind = "category"
{listed}
[features.age]
kind = "numeric"
[model]
kind = "logistic"
[method]
rounds = 3
"""


def features_of(jobs: Sequence[str | None]) -> FeatureRows:
    return parse_features(table_of({"job": jobs}), OPEN)


def agreed(sites: Sequence[Sequence[str | None]]) -> tuple[str, ...]:
    rows = [features_of(jobs) for jobs in sites]
    total = reduce(add, (bucket_counts(part, "job") for part in rows))
    named = [common_values(part, "job", total) for part in rows]
    with_other = replace_features(OPEN, Feature("age", Kind.NUMERIC))
    completed = with_values(with_other, {"job": named})
    return next((f.categories for f in completed.features if f.column == "job"), ())


def replace_features(schema: Schema, *more: Feature) -> Schema:
    return Schema(schema.target, (*schema.features, *more), schema.protected)


def draw_jobs(rows: int, seed: int = 0) -> list[str | None]:
    generator = np.random.default_rng(seed)
    jobs = generator.zipf(1.3, rows) % 400
    return [None if job == 7 else str(100 + job) for job in jobs]


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(0, 2**32))
def test_the_list_is_that_of_the_pooled_rows_for_every_partition(sites: int, seed: int) -> None:
    jobs = draw_jobs(1_000)
    owner = np.random.default_rng(seed).integers(0, sites, len(jobs))
    parts = [
        [job for job, site in zip(jobs, owner, strict=True) if site == n] for n in range(sites)
    ]
    assert agreed([part for part in parts if part]) == agreed([jobs])


def test_values_with_enough_rows_are_listed_and_rare_ones_are_not() -> None:
    jobs = draw_jobs(5_000)
    counts = Counter(job for job in jobs if job is not None)
    assert agreed([jobs[:100], jobs[100:]]) == tuple(
        sorted(job for job, count in counts.items() if count >= MINIMUM_ROWS)
    )
    assert min(counts.values()) < MINIMUM_ROWS


def test_a_value_that_no_site_has_often_is_listed_if_they_have_it_often_together() -> None:
    assert agreed([["rare", "welder"]] * MINIMUM_ROWS) == ("rare", "welder")
    assert agreed([["rare", "welder"]] * (MINIMUM_ROWS - 1)) == ()


def test_codes_are_counted_again_in_the_agreed_list() -> None:
    rows = features_of(["b", None, "a", "zz", "b"])
    listed = Feature("job", Kind.CATEGORY, ("a", "b", "c"), from_sites=True)
    done = complete_features(rows, Schema(OPEN.target, (listed,), OPEN.protected))
    assert done.codes["job"].tolist() == [1, 3, 0, 4, 1]
    assert not done.values


def test_the_same_number_is_the_same_code_and_leading_zeros_are_not() -> None:
    sites = [["1"] * 20 + ["01"] * 20, ["1.0"] * 20, [" 1"] * 20]
    assert agreed(sites) == ("01", "1")


def test_spellings_at_different_sites_are_refused() -> None:
    said = complaint_of(lambda: agreed([["welder"] * 20, ["Welder"] * 20]))
    assert said.startswith(
        "column 'job' has 'Welder' and 'welder' at different sites, which differ"
    )


@pytest.mark.parametrize("repeats", [1, MINIMUM_ROWS])
def test_too_many_values_are_refused_before_any_is_named(repeats: int) -> None:
    """One row each in twenty times as many rows as buckets, or all of them common."""
    many = 20 * BUCKETS if repeats == 1 else BUCKETS
    jobs = [f"p{number}" for number in range(many)] * repeats
    assert complaint_of(lambda: agreed([jobs])) == (
        f"category 'job' has more than {MAX_VALUES:,} values: if they identify rows, remove "
        '[features.job]; if they are a quantity, write kind = "numeric"; else give coarser codes, '
        "such as the first digits"
    )


def test_ten_thousand_codes_work_and_one_row_each_names_nobody() -> None:
    codes = [str(number) for number in range(MAX_VALUES)]
    assert len(agreed([codes * MINIMUM_ROWS])) == MAX_VALUES
    assert agreed([codes]) == ()


def test_long_texts_are_no_codes() -> None:
    assert agreed([["x" * 201] * 50 + ["y"] * 50]) == ("y",)


def test_counts_have_every_row_once_in_each_table() -> None:
    counts = bucket_counts(features_of(["a", "b", None, "a"]), "job")
    assert counts.shape == (TABLES, BUCKETS)
    assert counts.sum(axis=1).tolist() == [3] * TABLES


def write_sites(folder: Path, sites: int = 3, rows: int = 900) -> pl.DataFrame:
    generator = np.random.default_rng(2)
    jobs = pl.Series("job", draw_jobs(rows, 3))
    pay = {job: generator.normal() for job in sorted(jobs.drop_nulls().unique())}
    effect = np.array([pay.get(job, 0.0) for job in jobs])
    whole = pl.DataFrame(
        {
            "job": jobs,
            "age": generator.integers(20, 70, rows),
            "sex": generator.choice(["f", "m"], rows),
            "y": (effect + generator.normal(size=rows) > 0).astype(int),
        }
    )
    for number in range(sites):
        whole[number::sites].write_csv(folder / f"s{number}.csv")
    return whole


def load(folder: Path, listed: str = "", held_out: float = 0.25, sites: int = 3) -> FederatedTables:
    names = "\n".join(f's{number} = "s{number}.csv"' for number in range(sites))
    path = folder / "fedminmax.toml"
    path.write_text(CONFIG.format(held_out=held_out, sites=names, listed=listed))
    return load_federated_tables(read_config(path))


def test_everything_after_is_as_if_the_list_had_been_in_the_file(tmp_path: Path) -> None:
    write_sites(tmp_path)
    found = load(tmp_path)
    (job, _) = found.encoding.schema.features
    listed = ", ".join(f'"{value}"' for value in job.categories)
    given_list = load(tmp_path, f"categories = [{listed}]")
    assert found.encoding.names == given_list.encoding.names
    assert found.summary == given_list.summary
    for part, other in zip(
        (*found.train, *found.test), (*given_list.train, *given_list.test), strict=True
    ):
        assert torch.equal(part.examples.x, other.examples.x)


def test_rare_codes_are_nowhere_in_what_is_kept(tmp_path: Path) -> None:
    whole = write_sites(tmp_path)
    kept = encoding_as_json(load(tmp_path, held_out=0.0).encoding)
    counts = whole["job"].drop_nulls().value_counts()
    for job, rows in counts.rows():
        assert (f'"{job}"' in kept) == (rows >= MINIMUM_ROWS)


def test_one_site_with_all_rows_has_the_same_features(tmp_path: Path) -> None:
    whole = write_sites(tmp_path, sites=4)
    by_four = load(tmp_path, held_out=0.0, sites=4).encoding
    whole.write_csv(tmp_path / "s0.csv")
    assert load(tmp_path, held_out=0.0, sites=1).encoding == by_four


def test_a_column_without_common_values_is_dropped_with_a_note(tmp_path: Path) -> None:
    for name in ("s0", "s1", "s2"):
        frame = pl.DataFrame({"job": [f"{name} {n}" for n in range(40)], "age": range(40)})
        frame = frame.with_columns(sex=pl.Series(["f", "m"] * 20), y=pl.Series([0, 0, 1, 1] * 10))
        frame.write_csv(tmp_path / f"{name}.csv")
    tables = load(tmp_path, held_out=0.0)
    note = "no value of 'job' has 10 training rows over all sites: dropped"
    assert note in tables.notes
    assert tables.encoding.schema.feature_columns == ("age",)


def test_a_linear_model_of_many_codes_is_said_to_take_long(tmp_path: Path) -> None:
    codes = [f"code {number}" for number in range(1_100)] * MINIMUM_ROWS
    both = {"sex": ["f", "m"] * 5_500, "y": [0, 0, 1, 1] * 2_750}
    pl.DataFrame({"job": codes, "age": range(11_000), **both}).write_csv(tmp_path / "s0.csv")
    notes = load(tmp_path, held_out=0.0, sites=1).notes
    assert 'kind = "additive" in [model] takes a fraction of that' in " ".join(notes)
    path = tmp_path / "fedminmax.toml"
    path.write_text(path.read_text().replace('"logistic"', '"additive"'))
    assert "takes a fraction" not in " ".join(load_federated_tables(read_config(path)).notes)


def test_numbers_at_one_site_and_words_at_another_are_refused(tmp_path: Path) -> None:
    write_sites(tmp_path)
    frame = pl.read_csv(tmp_path / "s0.csv")
    words = frame.with_columns(pl.col("job").cast(pl.String).str.replace_all(r"^", "job "))
    words.write_csv(tmp_path / "s0.csv")
    said = complaint_of(lambda: load(tmp_path))
    assert said.startswith("column 'job' is coded differently: ")
