"""What a column of numbers may be instead of a quantity: an identifier, a weight, a code.

A guess by names and by how values repeat, for `fedminmax init`; the user can correct it.
"""

import re

import numpy as np
import polars as pl

from fedminmax.data.tables.outliers import codes_for_missing

# Columns that tables get when they are written without a thought.
INDEX_NAMES = r"^(|unnamed: ?\d+|index|level_0|__index_level_0__|row|row_?(number|no|id))$"
WEIGHT_NAMES = (
    r"^(fnlwgt|p?wgtp?|pweight|"
    r"(instance|sample|sampling|survey|person|final|case|design|replicate)[_ -]?weights?)$"
)
CODE_NAMES = {
    *("zip", "zipcode", "postcode", "postal", "plz", "fips", "icd", "icd9", "icd10", "code"),
    *("codes", "occp", "naics", "soc", "diagnosis", "type", "category", "status"),
}
LEADING_ZERO = r"^0[0-9]"
# Codes have gaps: of the numbers between the smallest and the largest, at most this share occurs,
MAX_DENSITY = 0.2
# each in so many rows, and none in most of them, as zeros of a quantity do.
MIN_REPEATS, MAX_SHARE = 5.0, 0.5
MIN_CODES = 20


def name_parts(name: str) -> list[str]:
    """Return the words of a column's name.

    >>> name_parts("patient_ID"), name_parts("icd10 code")
    (['patient', 'id'], ['icd10', 'code'])
    """
    return re.findall("[a-z0-9]+", name.lower())


def why_no_feature(text: pl.Series, values: pl.Series, numbers: pl.Series) -> str:
    """Say why a column of numbers should not be a feature; "" if it may be one."""
    name = text.name.strip().lower()
    whole = bool((numbers == numbers.round()).all())
    if whole and re.match(INDEX_NAMES, name):
        return "numbers the rows, as its name says"
    if whole and len(values) == len(text) and {"id", "identifier"} & set(name_parts(name)):
        return "only identifies rows: its numbers are all different"
    if re.match(WEIGHT_NAMES, name):
        return "is a weight of rows by its name, and weights are not used"
    return ""


def may_be_codes(text: pl.Series, values: pl.Series, numbers: pl.Series) -> bool:
    """Return whether whole numbers look like codes rather than quantities.

    >>> zips = pl.Series("zip", ["10115", "01067"] * 9)
    >>> may_be_codes(zips, zips.unique(), zips.unique().cast(pl.Float64))
    True
    """
    if len(values) < 3 and not bool(values.str.contains(LEADING_ZERO).any()):
        return False
    if not bool((numbers == numbers.round()).all()):
        return False
    if bool(values.str.contains(LEADING_ZERO).any()) or CODE_NAMES & set(name_parts(text.name)):
        return True
    if len(values) < MIN_CODES:
        return False
    counts = text.drop_nulls().value_counts(name="rows")["rows"].to_numpy()
    rows = int(counts.sum())
    if rows < MIN_REPEATS * len(values) or counts.max() > MAX_SHARE * rows:
        return False
    found = np.setdiff1d(numbers.to_numpy(), codes_for_missing(text.cast(pl.Float64).to_numpy()))
    found = found.astype(np.int64)
    steps = np.diff(found)
    # Prices in steps of ten are no codes.
    span = int(found[-1] - found[0]) // int(np.gcd.reduce(steps)) + 1
    return len(found) < MAX_DENSITY * span


UNITS = r"(%|[$\u20ac\u00a3\u00a5]|[A-Za-z]{1,5}(?:/[A-Za-z]{1,4})?)"


def unit_of(values: pl.Series) -> str:
    """Return the unit that all texts of numbers have, before or after them; "" if there is none.

    >>> unit_of(pl.Series(["40%", "12.5 %"])), unit_of(pl.Series(["$3", "$12"]))
    ('%', '$')
    >>> unit_of(pl.Series(["3 kg", "4 lb"])), unit_of(pl.Series(["a1", "b2"]))
    ('', '')
    """
    number = r"[+-]?\d[\d.,' ]*"
    for pattern in (rf"^{number}\s*{UNITS}$", r"^[+-]?([$\u20ac\u00a3\u00a5])\s*\d[\d.,' ]*$"):
        units = values.str.extract(pattern)
        if units.null_count() == 0 and units.n_unique() == 1:
            return str(units[0])
    return ""


def without_unit(text: pl.Series, unit: str) -> pl.Series:
    """Return texts without this unit before or after the number."""
    if not unit:
        return text
    own = re.escape(unit)
    bare = text.str.replace(rf"\s*{own}$", "")
    return bare.str.replace(rf"^([+-]?){own}\s*", "${1}")
