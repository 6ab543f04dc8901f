"""Warnings that need the rows of several sites: records in common, other units, other formats.

Between real sites nobody sees two tables, and a comparison of records would disclose who is in
both. So these warnings exist only where one process reads all files.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.schema import Kind, Schema
from fedminmax.core.text import counted
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.outliers import MINIMUM_ROWS
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.site_summary import SiteSummary

# Fewer records in common, or fewer than so many times what chance explains, are no overlap.
MIN_COMMON, MIN_SHARE, TIMES_CHANCE = 10, 0.01, 5.0
MAX_PAIRS = 3
# Mean and spread that both differ by a factor of more than this point to another unit, if the
# column is far from 0; else only a factor that no measurement explains.
MIN_FACTOR, MAX_RATIO = 1.8, 50.0
SAME_FACTOR = 1.2
# Means so many deviations apart: hardly any value of one site occurs at the other.
APART = 3.0


def overlap_warnings(sites: Mapping[str, ParsedRows], schema: Schema) -> list[str]:
    """Warn of sites that have records in common, more than chance explains."""
    found = sorted(_overlaps(sites, schema), key=lambda pair: -pair[2])
    if not found:
        return []
    pairs = [
        f"'{one}' and '{other}' have {common:,} records in common (of {len(sites[one]):,} and "
        f"{len(sites[other]):,})"
        for one, other, common in found[:MAX_PAIRS]
    ]
    more = f"; so have {counted(len(found) - MAX_PAIRS, 'more pair')}"
    warning = (
        f"{', '.join(pairs)}{more if len(found) > MAX_PAIRS else ''}: each counts twice, and "
        "held-out rows of one are training rows of the other; remove them from one of the files"
    )
    return [warning]


def _overlaps(sites: Mapping[str, ParsedRows], schema: Schema) -> Iterator[tuple[str, str, int]]:
    """Yield pairs of sites, and how many records they have in common."""
    names = [name for name, rows in sites.items() if len(rows) >= MIN_COMMON]
    if len(names) < 2:
        return
    frames = [
        pl.DataFrame({"record": _row_hashes(sites[name], schema)})
        .group_by("record")
        .len("rows")
        .with_columns(site=pl.lit(place, dtype=pl.Int32))
        for place, name in enumerate(names)
    ]
    # Two rows of one site are equal by chance as often as two rows of different sites.
    sizes = np.array([len(sites[name]) for name in names], dtype=float)
    equal = sum(float((own["rows"] * (own["rows"] - 1)).sum()) for own in frames)
    chance = equal / max(float((sizes * (sizes - 1)).sum()), 1.0)
    every = pl.concat(frames)
    shared = every.filter(pl.col("record").count().over("record") > 1)
    pairs = (
        shared.join(shared, on="record", suffix="_other")
        .filter(pl.col("site") < pl.col("site_other"))
        .group_by("site", "site_other")
        .agg(
            equal=(pl.col("rows") * pl.col("rows_other")).sum(),
            common=pl.min_horizontal("rows", "rows_other").sum(),
        )
        .sort("site", "site_other")
    )
    for one, other, equal_pairs, common in pairs.iter_rows():
        least = max(MIN_COMMON, MIN_SHARE * min(sizes[one], sizes[other]))
        expected = chance * sizes[one] * sizes[other]
        if common >= least and equal_pairs > TIMES_CHANCE * expected:
            yield names[one], names[other], common


def _row_hashes(rows: ParsedRows, schema: Schema) -> NDArray[np.uint64]:
    names = pl.Series([group_name(key, schema) for key in rows.group_keys], dtype=pl.String)
    columns = [
        *(pl.Series(values) for values in rows.features.quantities.values()),
        *(pl.Series(codes) for codes in rows.features.codes.values()),
        pl.Series(rows.target),
        names.gather(rows.group),
    ]
    frame = pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)])
    return frame.hash_rows(seed=0).to_numpy()


def unit_warnings(sites: Mapping[str, SiteSummary], schema: Schema) -> list[str]:
    """Warn of number columns that one site has in another unit or format than the others.

    With another decimal mark 7,157 is 7157; kilograms are pounds times 0.45; Fahrenheit and Celsius
    hardly overlap.
    """
    columns = [own.column for own in schema.features if own.kind is Kind.NUMERIC]
    found = []
    for column in columns:
        sums = {name: own.quantities[column] for name, own in sites.items()}
        levels = {
            name: Level(own.mean, own.deviation)
            for name, own in sums.items()
            if own.count >= MINIMUM_ROWS
        }
        found += [text for text in [_odd_one(column, levels)] if text]
    if not found:
        return []
    warning = (
        f"{', '.join(found)}, compared with other sites: check the unit there (convert it in the "
        "file), and decimal mark and thousands separator in [data.formats]"
    )
    return [warning]


class Level(NamedTuple):
    """Mean and standard deviation of a column."""

    mean: float
    deviation: float


def _odd_one(column: str, levels: Mapping[str, Level]) -> str:
    """Describe the site whose numbers differ most from the others', if they do; else ""."""
    differences = {
        name: _difference(own, _typical([one for other, one in levels.items() if other != name]))
        for name, own in levels.items()
        if len(levels) > 1
    }
    name = max(differences, key=lambda one: differences[one][0], default=None)
    if name is None or not differences[name][1]:
        return ""
    return f"column '{column}' {differences[name][1]} at '{name}'"


def _typical(levels: Sequence[Level]) -> Level:
    mean, deviation = np.median(np.array(levels), axis=0).tolist()
    return Level(mean, deviation)


def _difference(own: Level, usual: Level) -> tuple[float, str]:
    """Return the size of a difference on a log scale, and what it is; "" if it is none."""
    sizes = math.hypot(*own), math.hypot(*usual)
    if 0.0 in sizes:
        return 0.0, ""
    ratio = math.log(sizes[0] / sizes[1])
    text = f"is about {math.exp(abs(ratio)):.2g} times as {'large' if ratio > 0 else 'small'}"
    if abs(ratio) > math.log(MAX_RATIO):
        return abs(ratio), text
    spreads = own.deviation, usual.deviation
    if min(spreads) > 0 and abs(own.mean - usual.mean) > APART * sum(spreads):
        return max(abs(ratio), math.log(MIN_FACTOR)), "has quite other values"
    # With few large values, mean and spread vary together by chance.
    compact = all(0 < level.deviation < abs(level.mean) for level in (own, usual))
    if compact and own.mean * usual.mean > 0:
        means, deviations = (math.log(one / other) for one, other in zip(own, usual, strict=True))
        same = abs(means - deviations) < math.log(SAME_FACTOR)
        if same and abs(means) > math.log(MIN_FACTOR):
            return abs(means), text
    return 0.0, ""
