"""Whether a column of whole numbers has codes rather than quantities, as `fedminmax init` guesses.

Codes have no order, so their target means do not follow one: from one code to the next they jump.
Those of a quantity rise, fall, or do both once. So the means are fitted by the best curve with one
turn (isotonic regression on either side of it; Barlow, Bartholomew, Bremner and Brunk 1972), and an
analysis of variance compares what it leaves with the noise of the means. Codes leave a large
share of the variance between values, and far more than noise explains.

A panel of few persons, or prices that end in 99, jump too. So a column that is called age, hours or
price is a quantity, and one that mostly is zero is one. Names such as ZIP, and leading zeros, tell
codes without any target.
"""

import math
import re
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from fedminmax.config.schema import Target
from fedminmax.data.tables.agreed_values import MAX_VALUES
from fedminmax.data.tables.odd_rows import codes_for_missing

LEADING_ZERO = r"^0[0-9]"
CODE_NAMES = {
    *("code", "codes", "type", "category", "status", "kind", "class"),
    *("zip", "zipcode", "postcode", "postal", "plz", "fips", "puma", "county", "district"),
    *("region", "country", "nationality", "municipality", "ward", "department", "specialty"),
    *("icd", "diag", "atc", "drg", "cpt", "hcpcs", "ndc", "loinc", "snomed", "diagnosis"),
    *("occupation", "industry", "naics", "sic", "soc", "isco", "nace"),
    *("race", "ethnicity", "religion", "language", "marital", "relationship"),
    # Of the American Community Survey.
    *("cow", "occp", "indp", "naicsp", "socp", "pobp", "relp", "relshipp", "rac1p"),
}
# Of the same survey, but with more values they would be something else: sales in March.
NAMES_OF_FEW_CODES = {"mar", "cit", "esr"}
MAX_FEW_CODES = 10
# What a word of a quantity's name begins with: AGEP, hours_per_week, n_children.
QUANTITY_STEMS = (
    *("age", "year", "yr", "month", "week", "wk", "day", "hour", "hr", "minute", "time", "dur"),
    *("price", "cost", "income", "inc", "wage", "salary", "amount", "amt", "tax", "debt", "fee"),
    *("weight", "height", "length", "width", "size", "area", "dist", "speed", "temp", "dose"),
    *("count", "num", "number", "rank", "score", "points", "rate", "pct", "perc", "share"),
    *("exp", "educ", "schl", "grade", "kids", "child", "pop"),
)
ID_NAMES = {"id", "ids", "identifier", "idcode", "person", "patient", "subject", "nr", "no"}
# With fewer values a curve with one turn fits nearly anything.
MIN_VALUES = 6
# Means of fewer rows than these are mostly noise, and so is what they differ by.
MIN_REPEATS = 5.0
# Codes occur more than once: a day of a diagnosis hardly does.
MIN_REPEATS_OF_NAMED = 2.0
# What codes leave of the variance between values: 0.4 or more in the tables of the American
# Community Survey, where ages, hours and schooling leave less than 0.01.
MIN_SHARE_LEFT, MIN_DEVIATIONS = 0.15, 8.0
# Zeros of a quantity are this share of its rows, or more.
MAX_ZERO_SHARE = 0.5
# Codes have gaps: of the numbers between the smallest and the largest, at most this share occurs,
# each in several rows, and none in most of them.
MAX_DENSITY, MAX_SHARE, MIN_CODES = 0.2, 0.5, 20
# Numbers that count so many rows in order are those of the rows of a file.
MIN_COUNTED = 100
MAX_TURNS_TRIED = 40
MAX_CLASSES_TRIED = 5
Numbers = NDArray[np.float64]


class Leftover(NamedTuple):
    """What a curve with one turn leaves: of the variance between values, and beyond noise."""

    share: float
    deviations: float


def why_codes(text: pl.Series, values: pl.Series, numbers: pl.Series, scores: Numbers) -> str:
    """Say what shows that whole numbers are codes; "" if nothing does.

    ``scores`` are the target in numbers [rows, scores], NaN where it is missing.

    >>> zips = pl.Series("zip", ["10115", "01067"] * 9)
    >>> why_codes(zips, zips.unique(), zips.unique().cast(pl.Float64), np.zeros((18, 0)))
    'leading zeros'
    """
    whole = bool((numbers == numbers.round()).all())
    if not whole or len(values) > MAX_VALUES or ID_NAMES & set(name_parts(text.name)):
        return ""
    if bool(values.str.contains(LEADING_ZERO).any()):
        return "leading zeros"
    rows = len(text) - text.null_count()
    repeats = rows >= MIN_REPEATS_OF_NAMED * len(values)
    if len(values) > 2 and repeats and _is_named_code(text.name, len(values)):
        return "by its name"
    if len(values) < MIN_VALUES or rows < MIN_REPEATS * len(values) or _is_named_quantity(text):
        return ""
    numbers_by_row = text.cast(pl.Float64, strict=False).to_numpy()
    if np.mean(numbers_by_row == 0.0) > MAX_ZERO_SHARE:
        return ""
    left = [leftover(numbers_by_row, scores[:, number]) for number in range(scores.shape[1])]
    jumps = any(one.share >= MIN_SHARE_LEFT and one.deviations >= MIN_DEVIATIONS for one in left)
    return "the target jumps from one to the next" if jumps else ""


def have_gaps(text: pl.Series, values: pl.Series, numbers: pl.Series) -> bool:
    """Return whether whole numbers have gaps as codes do; quantities may have them as well."""
    if not bool((numbers == numbers.round()).all()) or len(values) < MIN_CODES:
        return False
    counts = text.drop_nulls().value_counts(name="rows")["rows"].to_numpy()
    rows = int(counts.sum())
    if rows < MIN_REPEATS * len(values) or counts.max() > MAX_SHARE * rows:
        return False
    codes = np.setdiff1d(numbers.to_numpy(), codes_for_missing(text.cast(pl.Float64).to_numpy()))
    codes = codes.astype(np.int64)
    steps = np.diff(codes)
    # Prices in steps of ten are no codes.
    span = int(codes[-1] - codes[0]) // int(np.gcd.reduce(steps)) + 1
    return len(codes) < MAX_DENSITY * span and not _is_named_quantity(text)


def target_scores(text: pl.Series, target: Target) -> Numbers:
    """Return the target in numbers that means can be taken of, NaN where it is missing.

    A quantity counts by its rank, so that no outlier decides; classes have a column each.
    """
    if target.is_quantity:
        ranks = text.cast(pl.Float64, strict=False).rank().cast(pl.Float64)
        return ranks.fill_null(np.nan).to_numpy()[:, None]
    counts = text.drop_nulls().value_counts(sort=True)[text.name].to_list()
    # The last one adds nothing to the others.
    classes = counts[: min(len(counts) - 1, MAX_CLASSES_TRIED)]
    columns = [(text == name).cast(pl.Float64).fill_null(np.nan).to_numpy() for name in classes]
    return np.column_stack(columns) if columns else np.zeros((len(text), 0))


def leftover(numbers: Numbers, scores: Numbers) -> Leftover:
    """Compare what a curve with one turn leaves of the means by value with their noise."""
    present = ~(np.isnan(numbers) | np.isnan(scores))
    values, place, rows = np.unique(numbers[present], return_inverse=True, return_counts=True)
    own, count = scores[present], len(values)
    if len(own) <= count or count < MIN_VALUES:
        return Leftover(0.0, 0.0)
    means = np.bincount(place, own) / rows
    within = np.bincount(place, (own - means[place]) ** 2)
    noise = float(within.sum()) / (len(own) - count)
    between = float((rows * (means - own.mean()) ** 2).sum()) - noise * (count - 1)
    # A constant is such a curve, too: where it leaves no more than noise, none does.
    if noise <= 0.0 or between < MIN_DEVIATIONS * noise * math.sqrt(2.0 * (count - 1)):
        return Leftover(0.0, 0.0)
    fit = _best_fit_with_one_turn(means, rows.astype(np.float64))
    # Noise depends on the level: that of a rare class is small where it hardly ever occurs.
    _, level = np.unique(fit, return_inverse=True)
    values_at, rows_at = np.bincount(level), np.bincount(level, rows)
    few = rows_at == values_at
    noise_at = np.where(few, noise, np.bincount(level, within) / np.maximum(rows_at - values_at, 1))
    expected = float((noise_at * (values_at - 1)).sum())
    spread = math.sqrt(2.0 * float((noise_at**2 * (values_at - 1)).sum()))
    left = float((rows * (means - fit) ** 2).sum()) - expected
    return Leftover(left / between, left / spread if spread else 0.0)


def _best_fit_with_one_turn(means: Numbers, rows: Numbers) -> Numbers:
    """Return the curve that rises and then falls, or the other way, and leaves least squares."""
    step = max(1, len(means) // MAX_TURNS_TRIED)
    best, least = means, math.inf
    for rises_first in (True, False):
        for turn in range(0, len(means), step):
            parts = [
                isotonic_regression(means[part], weights=rows[part], increasing=rises).x
                for part, rises in (
                    (slice(None, turn), rises_first),
                    (slice(turn, None), not rises_first),
                )
                if len(means[part])
            ]
            fit = np.concatenate(parts)
            left = float((rows * (means - fit) ** 2).sum())
            if left < least:
                best, least = fit, left
    return best


def _is_named_code(name: str, values: int) -> bool:
    """Return whether a word of the name, such as zip or icd10, is that of codes."""
    parts = {re.sub("[0-9]+$", "", part) for part in name_parts(name)}
    few = NAMES_OF_FEW_CODES if values <= MAX_FEW_CODES else set()
    return bool(parts & (CODE_NAMES | few))


def counts_rows(text: pl.Series, numbers: pl.Series) -> bool:
    """Return whether numbers go up by one from row to row, from 0 or 1 in each of some files."""
    if numbers.null_count() or _is_named_quantity(text):
        return False
    rows = numbers.to_numpy()
    starts = np.flatnonzero(np.diff(rows) != 1) + 1
    return (
        rows[0] in (0, 1)
        and bool((rows[starts] == rows[0]).all())
        and len(rows) >= MIN_COUNTED * (len(starts) + 1)
    )


def _is_named_quantity(text: pl.Series) -> bool:
    return any(part.startswith(QUANTITY_STEMS) for part in name_parts(text.name))


def name_parts(name: str) -> list[str]:
    """Return the words of a column's name.

    >>> name_parts("patient_ID"), name_parts("icd10 code")
    (['patient', 'id'], ['icd10', 'code'])
    """
    return re.findall("[a-z0-9]+", name.lower())
