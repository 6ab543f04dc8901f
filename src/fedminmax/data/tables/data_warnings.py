"""Warnings about suspicious rows: copies, one-class holders, units, leaks.

A column that leaks the target is usually derived from it, or recorded after it, and will not be
available when the model is used. Columns are tested one at a time: how much of the error of the
best constant prediction remains if the prediction may depend on that column. Every holder can check
this on its own rows.

A warning names columns and holders, and counts many rows at once, but no row and no value.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.core.exact_sums import ExactSums
from fedminmax.core.text import counted
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.holder_summary import HolderSummary
from fedminmax.data.tables.outliers import MINIMUM_ROWS
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.schema import Feature, Kind, Schema

# With fewer rows two holders may look alike, and a column may fit the target, by chance.
MIN_COPY_ROWS = 10
MIN_LEAK_ROWS = 50
MIN_CLASS_ROWS = 5
# A column leaks the target if it removes this share of the error.
LEAK = 0.95
QUANTITY_LEAK = 0.99
# This many rows are enough to detect a leak, and cheap to sort.
MAX_ROWS = 5000
ROWS_PER_CATEGORY = 5
Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
# A column that differs in size by more than this between holders has probably another unit.
MAX_RATIO = 50.0


def copy_warnings(holders: Mapping[str, ParsedRows], schema: Schema) -> list[str]:
    """Warn of holders with the same rows, in any order."""
    seen: dict[bytes, str] = {}
    warnings = []
    sizes = Counter(map(len, holders.values()))
    for name, rows in holders.items():
        if len(rows) < MIN_COPY_ROWS or sizes[len(rows)] == 1:
            continue
        digest = hashlib.sha256(np.sort(_row_hashes(rows, schema)).tobytes()).digest()
        if digest in seen:
            warnings.append(
                f"holders '{seen[digest]}' and '{name}' have the same {len(rows):,} rows: each "
                "counts twice, and held-out rows of one are training rows of the other; remove one"
            )
        seen.setdefault(digest, name)
    return warnings


def constant_target_warnings(holders: Mapping[str, HolderSummary], schema: Schema) -> list[str]:
    """Warn of holders whose training rows all have the same target."""
    constant = {name: own.rows for name, own in holders.items() if _is_constant(own, schema)}
    if not constant:
        return []
    names = ", ".join(f"'{name}' ({counted(rows, 'row')})" for name, rows in constant.items())
    warning = (
        f"target '{schema.target.column}' is the same in all training rows of {names}: there the "
        "holder alone determines the target; check whether these rows are complete"
    )
    return [warning]


def scale_warnings(holders: Mapping[str, HolderSummary]) -> list[str]:
    """Warn of number columns that are far larger or smaller at one holder than at the others.

    Units and number formats are the usual reason: with another decimal mark 7,157 is 7157.
    """
    warnings = []
    columns = next(iter(holders.values())).quantities if len(holders) > 1 else {}
    for column in columns:
        sizes = {name: _size(own.quantities[column]) for name, own in holders.items()}
        logs = {name: math.log(size) for name, size in sizes.items() if size > 0.0}
        if len(logs) < 2:
            continue
        # Relative to the median of the other holders, on the scale of factors.
        factors = {
            name: own - float(np.median([log for other, log in logs.items() if other != name]))
            for name, own in logs.items()
        }
        name = max(factors, key=lambda own: abs(factors[own]))
        if abs(factors[name]) > math.log(MAX_RATIO):
            warnings.append(
                f"column '{column}' is about {math.exp(abs(factors[name])):,.0f} times as "
                f"{'large' if factors[name] > 0 else 'small'} at '{name}' as at other holders: "
                "check its unit, decimal mark and thousands separator"
            )
    return warnings


def _size(sums: ExactSums) -> float:
    """Return the root of the mean square; 0 with too few rows to say."""
    if sums.count < MINIMUM_ROWS:
        return 0.0
    return math.hypot(sums.mean, sums.deviation)


def leak_warnings(parts: Sequence[ParsedRows], schema: Schema) -> list[str]:
    """Warn of features that alone predict the target almost perfectly."""
    rows = sum(map(len, parts))
    if rows < MIN_LEAK_ROWS:
        return []
    # Random, because a table may repeat its classes in a pattern, but always the same rows.
    generator = np.random.default_rng(0)
    chosen = [np.flatnonzero(generator.random(len(part)) * rows < MAX_ROWS) for part in parts]
    sample = [part.take(own) for part, own in zip(parts, chosen, strict=True) if len(own)]
    target = np.concatenate([part.target for part in sample])
    shares = {
        feature.column: _share_explained(feature, sample, target, schema)
        for feature in schema.features
    }
    least = QUANTITY_LEAK if schema.target.is_quantity else LEAK
    return [
        f"column '{column}' alone predicts the target '{schema.target.column}' almost perfectly "
        f"(it removes {100 * share:.0f} % of the error): if it is derived from the target or known "
        "only after it, remove its section from the configuration"
        for column, share in shares.items()
        if share >= least
    ]


def _is_constant(summary: HolderSummary, schema: Schema) -> bool:
    if summary.rows < MIN_COPY_ROWS:
        return False
    if schema.target.is_quantity:
        return bool(summary.target.variance == 0)
    return len(summary.class_counts) == 1


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


def _share_explained(
    feature: Feature, sample: Sequence[ParsedRows], target: NDArray[np.generic], schema: Schema
) -> float:
    """Return the share of the constant prediction's error that this column removes."""
    if feature.kind is Kind.CATEGORY:
        codes = np.concatenate([part.features.codes[feature.column] for part in sample])
        return _by_category(codes.astype(np.int64), target, schema)
    values = np.concatenate([part.features.quantities[feature.column] for part in sample])
    missing = np.isnan(values)
    by_absence = _by_category(missing.astype(np.int64), target, schema) if missing.any() else 0.0
    known = np.flatnonzero(~missing)
    if len(known) < max(MIN_LEAK_ROWS, len(values) // 2):
        return by_absence
    order = known[np.argsort(values[known], kind="stable")]
    if schema.target.is_quantity:
        return max(by_absence, _by_order(values[order], target[order].astype(np.float64)))
    return max(by_absence, _by_intervals(values[order], target[order].astype(np.int64)))


def _by_category(codes: Codes, target: NDArray[np.generic], schema: Schema) -> float:
    """Use a constant prediction per category."""
    _, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if len(counts) * ROWS_PER_CATEGORY > len(codes):
        return 0.0
    if schema.target.is_quantity:
        values = target.astype(np.float64)
        means = np.bincount(place, values) / counts
        return _removed(float(values.var()), float(((values - means[place]) ** 2).mean()))
    labels = target.astype(np.int64)
    table = np.zeros((len(counts), int(labels.max()) + 1), np.int64)
    np.add.at(table, (place, labels), 1)
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
        own = int((labels == label).sum())
        before += min(own, len(labels) - own)
        after += own - best
    return _removed(before, after)


def _by_order(values: Numbers, target: Numbers) -> float:
    """Return the squared correlation with the target, of the values or of their ranks."""
    if values[0] == values[-1] or target.var() == 0:
        return 0.0
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        return 0.0
    ranks = np.argsort(np.argsort(target, kind="stable"), kind="stable").astype(np.float64)
    pairs = ((values, target), (place.astype(np.float64), ranks))
    with np.errstate(all="ignore"):
        found = [float(np.corrcoef(one, other)[0, 1]) ** 2 for one, other in pairs]
    return max((share for share in found if np.isfinite(share)), default=0.0)


def _has_two_classes(labels: Codes) -> bool:
    counts = np.bincount(labels)
    return len(labels) - int(counts.max()) >= MIN_CLASS_ROWS


def _removed(before: float, after: float) -> float:
    return 1.0 - after / before if before > 0 else 0.0
