"""Warnings about suspicious rows: one-class sites, leaks, copies of sensitive attributes.

A column that leaks the target is usually derived from it, or recorded after it, and will not be
available when the model is used. Columns are tested one at a time: how much of the error of the
best constant prediction remains if the prediction may depend on that column. Every site can check
this on its own rows.

A warning names columns and sites, and counts many rows at once, but no row and no value.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.text import MAX_NAMES, counted
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
Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]


def constant_target_warnings(sites: Mapping[str, SiteSummary], schema: Schema) -> list[str]:
    """Warn of sites whose training rows all have the same target."""
    constant = {name: own.rows for name, own in sites.items() if _is_constant(own, schema)}
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
    found = _predictors(sample, target, schema)
    if not found:
        return []
    warning = (
        f"columns that alone predict the target '{schema.target.column}': {found}: if one is "
        "derived from the target or known only after it, remove its section from the configuration"
    )
    return [warning]


def protected_copy_warnings(parts: Sequence[ParsedRows], schema: Schema) -> list[str]:
    """Warn of features that tell a sensitive attribute, which the model is said not to see."""
    sample = [] if schema.protected_as_features else _sample(parts)
    warnings = []
    for place, entry in enumerate(schema.protected if sample else ()):
        names = sorted({str(key[place]) for part in sample for key in part.group_keys})
        values = np.concatenate(
            [
                np.array([names.index(str(key[place])) for key in part.group_keys])[part.group]
                for part in sample
            ]
        )
        found = _predictors(sample, values, schema)
        if found:
            warnings.append(
                f"the model sees the sensitive attribute '{entry.column}' after all, by columns "
                f"that tell it: {found}: remove their sections from the configuration, or set "
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
    found = sorted((name for name, own in shares.items() if own >= least), key=lambda n: -shares[n])
    named = [f"'{name}' ({100 * shares[name]:.0f} % of the error)" for name in found[:MAX_NAMES]]
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(named) + more


def _sample(parts: Sequence[ParsedRows]) -> list[ParsedRows]:
    """Return some rows of each part, always the same ones; none of a table with too few rows."""
    rows = sum(map(len, parts))
    if rows < MIN_LEAK_ROWS:
        return []
    # Random, because a table may repeat its classes in a pattern.
    generator = np.random.default_rng(0)
    chosen = [np.flatnonzero(generator.random(len(part)) * rows < MAX_ROWS) for part in parts]
    return [part.take(own) for part, own in zip(parts, chosen, strict=True) if len(own)]


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
    known = np.flatnonzero(~missing)
    if len(known) < max(MIN_LEAK_ROWS, len(values) // 2):
        return by_absence
    order = known[np.argsort(values[known], kind="stable")]
    if target.dtype.kind == "f":
        return max(by_absence, _by_order(values[order], target[order].astype(np.float64)))
    return max(by_absence, _by_intervals(values[order], target[order].astype(np.int64)))


def _by_category(codes: Codes, target: NDArray[np.generic]) -> float:
    """Use a constant prediction per category."""
    _, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if len(counts) * ROWS_PER_CATEGORY > len(codes):
        return 0.0
    if target.dtype.kind == "f":
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
