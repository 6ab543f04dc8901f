"""Warnings about suspicious rows: one-class sites, leaks, copies, overlaps, other units.

A column that leaks the target is usually derived from it, or recorded after it, and will not be
available when the model is used. Columns are tested one at a time: how much of the error of the
best constant prediction remains if the prediction may depend on that column. Every site can check
this on its own rows.

Between real sites nobody sees two tables, and a comparison of records would disclose who is in
both. So warnings of overlaps and units exist only where one process reads all files.

A warning names columns and sites, and counts many rows at once, but no row and no value.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.examples import new_array, portions
from fedminmax.core.text import counted, first_few
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.odd_rows import MINIMUM_ROWS
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.site_summary import SiteSummary

# With fewer rows two sites may look alike, and a column may fit the target, by chance.
MIN_COPY_ROWS = 10
MIN_LEAK_ROWS = 50
MIN_CLASS_ROWS = 5
# A column is suspicious if it removes this share of the error.
LEAK = 0.8
QUANTITY_LEAK = 0.9
# This many rows are enough to detect a leak, and cheap to sort.
MAX_ROWS = 5000
ROWS_PER_CATEGORY = 5
# Fewer records in common, or fewer than so many times what chance explains, are no overlap.
MIN_COMMON, MIN_SHARE, TIMES_CHANCE = 10, 0.01, 5.0
MAX_PAIRS = 3
# Records whose hashes are counted at a time.
MAX_COUNTED = 2**22
# Mean and spread that both differ by a factor of more than this point to another unit, if the
# column is far from 0; else only a factor that no measurement explains.
MIN_FACTOR, MAX_RATIO = 1.8, 50.0
SAME_FACTOR = 1.2
# Means so many deviations apart: hardly any value of one site occurs at the other.
APART = 3.0
Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]


def constant_target_warnings(sites: Mapping[str, SiteSummary], schema: Schema) -> list[str]:
    """Warn of sites whose training rows all have the same target."""
    constant = {
        name: summary.rows for name, summary in sites.items() if _is_constant(summary, schema)
    }
    if not constant:
        return []
    names = ", ".join(f"'{name}' ({counted(rows, 'row')})" for name, rows in constant.items())
    warning = (
        f"target '{schema.target.column}' is the same in all training rows of {names}: there the "
        "site alone determines the target; check whether these rows are complete"
    )
    return [warning]


def leak_warnings(parts: Sequence[ParsedRows], schema: Schema) -> list[str]:
    """Warn of features that alone predict the target, with how much of its error they remove."""
    sample = _sample(parts)
    target = np.concatenate([part.target for part in sample] or [np.zeros(0)])
    predictors = _predictors(sample, target, schema)
    if not predictors:
        return []
    warning = (
        f"columns that alone predict the target '{schema.target.column}': {predictors}: if one is "
        "derived from the target or known only after it, remove its section from the configuration"
    )
    return [warning]


def protected_copy_warnings(parts: Sequence[ParsedRows], schema: Schema) -> list[str]:
    """Warn of features that tell a sensitive attribute, which the model is said not to see."""
    sample = [] if schema.protected_as_features else _sample(parts)
    warnings = []
    for index, entry in enumerate(schema.protected if sample else ()):
        names = sorted({str(key[index]) for part in sample for key in part.group_keys})
        values = np.concatenate(
            [
                np.array([names.index(str(key[index])) for key in part.group_keys])[part.group]
                for part in sample
            ]
        )
        predictors = _predictors(sample, values, schema)
        if predictors:
            warnings.append(
                f"the model sees the sensitive attribute '{entry.column}' after all, by columns "
                f"that tell it: {predictors}: remove their sections from the configuration, or set "
                "as_features = true in [groups]"
            )
    return warnings


def _predictors(sample: Sequence[ParsedRows], target: NDArray[np.generic], schema: Schema) -> str:
    """List the features that predict a target, the best first; "" if none does."""
    least = QUANTITY_LEAK if target.dtype.kind == "f" else LEAK
    shares = {
        feature.column: _share_explained(feature, sample, target)
        for feature in (schema.features if sample else ())
    }
    predictors = sorted(
        (name for name, share in shares.items() if share >= least), key=lambda n: -shares[n]
    )
    return first_few([f"'{name}' ({100 * shares[name]:.0f}% of the error)" for name in predictors])


def _sample(parts: Sequence[ParsedRows]) -> list[ParsedRows]:
    """Return some rows of each part, always the same ones; none of a table with too few rows."""
    rows = sum(map(len, parts))
    if rows < MIN_LEAK_ROWS:
        return []
    # Random, because a table may repeat its classes in a pattern.
    generator = np.random.default_rng(0)
    chosen = [_drawn(generator, len(part), rows) for part in parts]
    return [
        part.take(rows_taken)
        for part, rows_taken in zip(parts, chosen, strict=True)
        if len(rows_taken)
    ]


def _drawn(generator: np.random.Generator, records: int, rows: int) -> NDArray[np.int64]:
    drawn = [
        part.start + np.flatnonzero(generator.random(part.stop - part.start) * rows < MAX_ROWS)
        for part in portions(records)
    ]
    return np.concatenate(drawn) if drawn else np.zeros(0, np.int64)


def _is_constant(summary: SiteSummary, schema: Schema) -> bool:
    if summary.rows < MIN_COPY_ROWS:
        return False
    if schema.target.is_quantity:
        return bool(summary.target.variance == 0)
    return len(summary.class_counts) == 1


def _share_explained(
    feature: Feature, sample: Sequence[ParsedRows], target: NDArray[np.generic]
) -> float:
    """Return the share of the constant prediction's error that this column removes."""
    if feature.kind is Kind.CATEGORY:
        codes = np.concatenate([part.features.codes[feature.column] for part in sample])
        return _by_category(codes.astype(np.int64), target)
    values = np.concatenate([part.features.quantities[feature.column] for part in sample])
    missing = np.isnan(values)
    by_absence = _by_category(missing.astype(np.int64), target) if missing.any() else 0.0
    present = np.flatnonzero(~missing)
    if len(present) < max(MIN_LEAK_ROWS, len(values) // 2):
        return by_absence
    order = present[np.argsort(values[present], kind="stable")]
    if target.dtype.kind == "f":
        return max(by_absence, _by_order(values[order], target[order].astype(np.float64)))
    return max(by_absence, _by_intervals(values[order], target[order].astype(np.int64)))


def _by_category(codes: Codes, target: NDArray[np.generic]) -> float:
    """Use a constant prediction per category."""
    _, category, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if len(counts) * ROWS_PER_CATEGORY > len(codes):
        return 0.0
    if target.dtype.kind == "f":
        values = target.astype(np.float64)
        means = np.bincount(category, values) / counts
        return _removed(float(values.var()), float(((values - means[category]) ** 2).mean()))
    labels = target.astype(np.int64)
    table = np.zeros((len(counts), int(labels.max()) + 1), np.int64)
    np.add.at(table, (category, labels), 1)
    if not _has_two_classes(labels):
        return 0.0
    before = len(labels) - int(table.sum(axis=0).max())
    return _removed(before, len(labels) - int(table.max(axis=1).sum()))


def _by_intervals(values: Numbers, labels: Codes) -> float:
    """Use the best-fitting interval of values for each class.

    Of sorted rows, +1 for the class and -1 for others, the interval is the sub-array of the
    largest sum; it may begin and end only where the value changes.
    """
    if not _has_two_classes(labels):
        return 0.0
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))
    before = after = 0
    for label in np.unique(labels).tolist():
        sums = np.concatenate([[0], np.cumsum(np.where(labels == label, 1, -1))[ends - 1]])
        best = int((sums - np.minimum.accumulate(sums)).max())
        members = int((labels == label).sum())
        before += min(members, len(labels) - members)
        after += members - best
    return _removed(before, after)


def _by_order(values: Numbers, target: Numbers) -> float:
    """Return the squared correlation with the target, of the values or of their ranks."""
    if values[0] == values[-1] or target.var() == 0:
        return 0.0
    _, ranks_of_values, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        return 0.0
    ranks = np.argsort(np.argsort(target, kind="stable"), kind="stable").astype(np.float64)
    pairs = ((values, target), (ranks_of_values.astype(np.float64), ranks))
    with np.errstate(all="ignore"):
        shares = [float(np.corrcoef(one, other)[0, 1]) ** 2 for one, other in pairs]
    return max((share for share in shares if np.isfinite(share)), default=0.0)


def _has_two_classes(labels: Codes) -> bool:
    counts = np.bincount(labels)
    return len(labels) - int(counts.max()) >= MIN_CLASS_ROWS


def _removed(before: float, after: float) -> float:
    return 1.0 - after / before if before > 0 else 0.0


def overlap_warnings(sites: Mapping[str, ParsedRows], schema: Schema) -> list[str]:
    """Warn of sites that have records in common, more than chance explains."""
    overlaps = sorted(_overlaps(sites, schema), key=lambda pair: -pair[2])
    if not overlaps:
        return []
    pairs = [
        f"'{one}' and '{other}' have {common:,} records in common (of {len(sites[one]):,} and "
        f"{len(sites[other]):,})"
        for one, other, common in overlaps[:MAX_PAIRS]
    ]
    more = f"; so have {counted(len(overlaps) - MAX_PAIRS, 'more pair')}"
    warning = (
        f"{', '.join(pairs)}{more if len(overlaps) > MAX_PAIRS else ''}: each counts twice, and "
        "held-out rows of one are training rows of the other; remove them from one of the files"
    )
    return [warning]


def _overlaps(sites: Mapping[str, ParsedRows], schema: Schema) -> Iterator[tuple[str, str, int]]:
    """Yield pairs of sites, and how many records they have in common."""
    names = [name for name, rows in sites.items() if len(rows) >= MIN_COMMON]
    if len(names) < 2:
        return
    hashes = [_row_hashes(sites[name], schema) for name in names]
    sizes = np.array([len(sites[name]) for name in names], dtype=float)
    # Equal records have equal hashes, so parts with other remainders can be counted in turn.
    parts = math.ceil(sizes.sum() / MAX_COUNTED)
    found = [_equal_records(hashes, remainder, parts) for remainder in range(parts)]
    # Two rows of one site are equal by chance as often as two rows of different sites.
    equal = sum(within for within, _ in found)
    chance = equal / max(float((sizes * (sizes - 1)).sum()), 1.0)
    pairs = (
        pl.concat([between for _, between in found])
        .group_by("site", "site_other")
        .sum()
        .sort("site", "site_other")
    )
    for one, other, equal_pairs, common in pairs.iter_rows():
        least = max(MIN_COMMON, MIN_SHARE * min(sizes[one], sizes[other]))
        expected = chance * sizes[one] * sizes[other]
        if common >= least and equal_pairs > TIMES_CHANCE * expected:
            yield names[one], names[other], common


def _equal_records(
    hashes: Sequence[NDArray[np.uint64]], remainder: int, parts: int
) -> tuple[float, pl.DataFrame]:
    """Count equal records within sites, and of each pair of them, among those of a remainder."""
    frames = [
        pl.DataFrame({"record": own if parts == 1 else own[own % np.uint64(parts) == remainder]})
        .group_by("record")
        .len("rows")
        .with_columns(site=pl.lit(number, dtype=pl.Int32))
        for number, own in enumerate(hashes)
    ]
    within = sum(float((counts["rows"] * (counts["rows"] - 1)).sum()) for counts in frames)
    every = pl.concat(frames)
    shared = every.filter(pl.col("record").count().over("record") > 1)
    between = (
        shared.join(shared, on="record", suffix="_other")
        .filter(pl.col("site") < pl.col("site_other"))
        .group_by("site", "site_other")
        .agg(
            equal=(pl.col("rows") * pl.col("rows_other")).sum(),
            common=pl.min_horizontal("rows", "rows_other").sum(),
        )
    )
    return within, between


def _row_hashes(rows: ParsedRows, schema: Schema) -> NDArray[np.uint64]:
    names = pl.Series([group_name(key, schema) for key in rows.group_keys], dtype=pl.String)
    values = [*rows.features.quantities.values(), *rows.features.codes.values(), rows.target]
    hashes: NDArray[np.uint64] = new_array((len(rows),), np.uint64)
    for part in portions(len(rows)):
        columns = [*(pl.Series(own[part]) for own in values), names.gather(rows.group[part])]
        frame = pl.DataFrame([own.alias(str(number)) for number, own in enumerate(columns)])
        hashes[part] = frame.hash_rows(seed=0).to_numpy()
    return hashes


def unit_warnings(sites: Mapping[str, SiteSummary], schema: Schema) -> list[str]:
    """Warn of number columns that one site has in another unit or format than the others.

    With another decimal mark 7,157 is 7157; kilograms are pounds times 0.45; Fahrenheit and Celsius
    hardly overlap.
    """
    columns = [entry.column for entry in schema.features if entry.kind is Kind.NUMERIC]
    differing = []
    for column in columns:
        sums = {name: entry.quantities[column] for name, entry in sites.items()}
        levels = {
            name: Level(entry.mean, entry.deviation)
            for name, entry in sums.items()
            if entry.count >= MINIMUM_ROWS
        }
        differing += [text for text in [_odd_one(column, levels)] if text]
    if not differing:
        return []
    warning = (
        f"{', '.join(differing)}, compared with other sites: check the unit there (convert it in "
        "the file), and decimal mark and thousands separator in [data.formats]"
    )
    return [warning]


class Level(NamedTuple):
    """Mean and standard deviation of a column."""

    mean: float
    deviation: float


def _odd_one(column: str, levels: Mapping[str, Level]) -> str:
    """Describe the site whose numbers differ most from the others', if they do; else ""."""
    differences = {
        name: _difference(level, _typical([one for other, one in levels.items() if other != name]))
        for name, level in levels.items()
        if len(levels) > 1
    }
    name = max(differences, key=lambda one: differences[one][0], default=None)
    if name is None or not differences[name][1]:
        return ""
    return f"column '{column}' {differences[name][1]} at '{name}'"


def _typical(levels: Sequence[Level]) -> Level:
    mean, deviation = np.median(np.array(levels), axis=0).tolist()
    return Level(mean, deviation)


def _difference(here: Level, usual: Level) -> tuple[float, str]:
    """Return the size of a difference on a log scale, and what it is; "" if it is none."""
    sizes = math.hypot(*here), math.hypot(*usual)
    if 0.0 in sizes:
        return 0.0, ""
    ratio = math.log(sizes[0] / sizes[1])
    text = f"is about {math.exp(abs(ratio)):.2g} times as {'large' if ratio > 0 else 'small'}"
    if abs(ratio) > math.log(MAX_RATIO):
        return abs(ratio), text
    spreads = here.deviation, usual.deviation
    if min(spreads) > 0 and abs(here.mean - usual.mean) > APART * sum(spreads):
        return max(abs(ratio), math.log(MIN_FACTOR)), "has quite other values"
    # With few large values, mean and spread vary together by chance.
    compact = all(0 < level.deviation < abs(level.mean) for level in (here, usual))
    if compact and here.mean * usual.mean > 0:
        means, deviations = (math.log(one / other) for one, other in zip(here, usual, strict=True))
        same = abs(means - deviations) < math.log(SAME_FACTOR)
        if same and abs(means) > math.log(MIN_FACTOR):
            return abs(means), text
    return 0.0, ""
