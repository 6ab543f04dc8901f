"""A first guess at what columns mean, for `fedminmax init`; the user can correct it.

The configuration is shared, so a guess quotes no value of a row: remarks have only counts, and
categories are listed only if enough rows have them. Values that are probably typos (of a target or
group column with two numbers, and rare classes) are named with files and rows, for the screen.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fedminmax.config.file_format import PLAIN, by_value
from fedminmax.config.schema import PROPOSED_MISSING_VALUES, Feature, Kind, Protected, Target
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, first_few
from fedminmax.data.tables import notation
from fedminmax.data.tables.agreed_values import MAX_VALUES, MINIMUM_ROWS
from fedminmax.data.tables.code_columns import (
    Numbers,
    counts_rows,
    have_gaps,
    name_parts,
    why_codes,
)
from fedminmax.data.tables.notation import with_iso_dates, with_plain_numbers
from fedminmax.data.tables.odd_rows import outlier_rows
from fedminmax.data.tables.parse_columns import BOOLEAN_PAIRS, BOOLEAN_TEXTS, numbers_in, text_of
from fedminmax.data.tables.read_file import FileTable

MAX_CLASSES = 50
# Longer lists are not written: the sites agree on the values.
MAX_LISTED = 30
# Texts are categories if values with enough rows are this share of all, or more.
MIN_COMMON_SHARE = 0.5
# A category with fewer rows over all files may identify a person.
DEFAULT_MINIMUM_CATEGORY = 10
# A column is numeric if at most this share of its distinct values is text.
MAX_ODD_TEXTS = 0.1
# Whole numbers with at most this many values are classes or group codes, not quantities.
MAX_CODES = 10
DOT_BEFORE_THREE = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"
DAY_IN_DIGITS = r"^(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])$"
AGE_EDGES = (30.0, 45.0, 60.0)
# Columns that tables get when they are written without a thought.
INDEX_NAMES = (
    r"^(|unnamed: ?\d+|index|level_0|__index_level_0__|row|row[_. ]?(numbers?|names?|no|id))$"
)
WEIGHT_NAMES = (
    r"^(fnlwgt|p?wgtp?|pweight|"
    r"(instance|sample|sampling|survey|person|final|case|design|replicate)[_ -]?weights?)$"
)


@dataclass(frozen=True)
class Rare:
    """The number of values with too few rows to be listed, and their total number of rows."""

    values: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Guess:
    """A feature, or the reason why the column is not used, and a remark for the user.

    ``limits`` are the minimum and the maximum of a numeric column, which has a ``unit`` if all its
    texts have one, and whose numbers ``may_be_codes``. Whole numbers that are taken for
    codes are a category that ``is_code``.
    """

    feature: Feature | None
    remark: str = ""
    rare: Rare = Rare()
    limits: tuple[float, float] | None = None
    unit: str = ""
    may_be_codes: bool = False
    is_code: bool = False


@dataclass(frozen=True, eq=False)
class Stated:
    """What the user says of the columns, and how the target's scores tell codes from quantities.

    ``categories`` and ``numbers`` are so whatever they look like. With ``lists``, categories are
    listed however many they are; those with fewer rows than ``minimum_rows`` are not.
    """

    minimum_rows: int
    categories: Collection[str] = ()
    numbers: Collection[str] = ()
    lists: bool = False
    scores: Numbers | None = None


def guess_feature(text: pl.Series, stated: Stated) -> Guess:
    """Guess a feature's kind from all its values (as trimmed text, null where missing)."""
    column, values = text.name, text.drop_nulls().unique(maintain_order=True)
    different = len(values)
    if different == 0:
        return Guess(None, "has no values")
    if different == 1 and not text.null_count():
        return Guess(None, "is the same in every row")
    if column in stated.categories:
        return _category(text, stated)
    pairs = _pairs_of_booleans(values)
    for kind in (*([Kind.BOOLEAN] if pairs else []), Kind.NUMERIC, Kind.DATE):
        numbers = numbers_in(values, kind)
        if numbers.null_count() == 0 and bool(numbers.is_finite().all()):
            if kind is Kind.NUMERIC:
                return _numeric(text, values, numbers, stated)
            several = "Different words for yes and no are read as the same."
            remark = several if kind is Kind.BOOLEAN and pairs > 1 else ""
            return Guess(Feature(column, kind), remark)
    formats = notation.fitting_date_formats(values)
    if any(notation.SHORT_YEAR in date_format for date_format in formats):
        return Guess(
            None,
            "has years of two digits, which do not tell the century: write four digits, or give "
            "--date-format (69 to 99 are then 1969 to 1999)",
        )
    if len(formats) == 1:
        remark = f"Dates are read as {formats[0]}."
        return Guess(Feature(column, Kind.DATE, date_format=formats[0]), remark)
    if formats:
        return Guess(None, f"has dates that are either {' or '.join(formats)}: give --date-format")
    unit = notation.unit_of(values)
    if unit and not numbers_in(notation.without_unit(values, unit), Kind.NUMERIC).null_count():
        numbers = numbers_in(notation.without_unit(values, unit), Kind.NUMERIC)
        remark = f"Numbers are read without their unit, {unit}."
        feature = Feature(column, Kind.NUMERIC)
        return Guess(feature, remark, limits=_limits(numbers), unit=unit)
    other = _other_numbers(values)
    if different <= MAX_LISTED:
        guess = _category(text, stated)
        remark = f"This column has {other}." if other and guess.feature else guess.remark
        return replace(guess, remark=remark)
    if other:
        return Guess(None, f"has {other}")
    for kind, name in ((Kind.NUMERIC, "numbers"), (Kind.DATE, "dates")):
        mostly = _with_odd_texts(text, values, kind, name)
        if mostly is not None:
            return mostly
    rare = listed_values(text, MINIMUM_ROWS)[1].rows
    common = 1.0 - rare / (len(text) - text.null_count())
    if different > MAX_VALUES or common < MIN_COMMON_SHARE:
        return Guess(None, f"has {different:,} different texts, too many for categories")
    return _category(text, stated)


def _category(text: pl.Series, stated: Stated) -> Guess:
    """Return a category, with its values if they are few; else the sites agree on them."""
    minimum_rows = stated.minimum_rows
    categories, rare = listed_values(text, minimum_rows)
    if not categories:
        return Guess(None, f"has no category with at least {minimum_rows:,} rows", rare)
    if len(categories) > MAX_LISTED and not stated.lists:
        return Guess(Feature(text.name, Kind.CATEGORY, from_sites=True), "", rare)
    return Guess(Feature(text.name, Kind.CATEGORY, categories), "", rare)


def _numeric(text: pl.Series, values: pl.Series, numbers: pl.Series, stated: Stated) -> Guess:
    is_number = text.name in stated.numbers
    why_not = "" if is_number else why_no_feature(text, values, numbers)
    if why_not:
        return Guess(None, f"{why_not} (if it is a feature, write its section)")
    scores = np.zeros((len(text), 0)) if stated.scores is None else stated.scores
    reason = "" if is_number else why_codes(text, values, numbers, scores)
    if reason:
        remark = (
            f"{len(values):,} whole numbers that look like codes ({reason}): a category; if it is "
            'a quantity, write kind = "numeric"'
        )
        # Without a list, the kind is the one word to correct.
        feature = Feature(text.name, Kind.CATEGORY, from_sites=True)
        guess = _category(text, stated) if stated.lists else Guess(feature)
        return replace(guess, remark=remark, is_code=True) if guess.feature else guess
    return Guess(
        Feature(text.name, Kind.NUMERIC),
        _remark(text, values, numbers),
        limits=_limits(numbers),
        may_be_codes=not is_number and have_gaps(text, values, numbers),
    )


def _with_odd_texts(text: pl.Series, values: pl.Series, kind: Kind, name: str) -> Guess | None:
    """Return a column of numbers or dates of which a few are not; None if it is something else."""
    formats = (
        notation.mostly_fitting_date_formats(values, MAX_ODD_TEXTS) if kind is Kind.DATE else []
    )
    date_format = formats[0] if len(formats) == 1 else None
    numbers = numbers_in(values, kind, date_format=date_format)
    odd = values.filter(~numbers.is_finite().fill_null(value=False))
    if len(odd) > MAX_ODD_TEXTS * len(values):
        return None
    rows = int(text.is_in(odd.to_list()).sum())
    return Guess(
        Feature(text.name, kind, date_format=date_format),
        f"Training will refuse values that are not {name}: {len(odd):,} of them in "
        f"{counted(rows, 'row')}. Correct them, or add them to missing_values in [data].",
        limits=_limits(numbers.filter(numbers.is_finite())) if kind is Kind.NUMERIC else None,
    )


def _pairs_of_booleans(values: pl.Series) -> int:
    """Return how many pairs such as yes and no the values are; 0 if they are something else.

    Beside another pair, half a pair is not enough, and T, F, Y and N are probably codes.
    """
    texts = {text.lower() for text in values.head(2 * len(BOOLEAN_TEXTS)).to_list()}
    pairs = [pair for pair in BOOLEAN_PAIRS if texts & set(pair)]
    if not texts <= BOOLEAN_TEXTS.keys():
        return 0
    whole = all(texts >= set(pair) for pair in pairs)
    letters = sum(len(pair[0]) == 1 and pair[0].isalpha() for pair in pairs)
    return len(pairs) if len(pairs) == 1 or (whole and letters < 2) else 0


def listed_values(text: pl.Series, minimum_rows: int) -> tuple[tuple[str, ...], Rare]:
    """Return the values with enough rows in alphabetical order, and a count of the others."""
    counts = text.drop_nulls().value_counts(name="rows")
    enough = counts["rows"] >= minimum_rows
    rare = counts.filter(~enough)
    return (
        tuple(sorted(counts.filter(enough)[text.name].to_list())),
        Rare(len(rare), int(rare["rows"].sum())),
    )


def guess_target(text: pl.Series, task: str | None = None) -> Target:
    """Return a quantity for numbers with many or fractional values, classes otherwise."""
    values = text.drop_nulls().unique()
    if task == "regression" or (task is None and is_quantity(values)):
        return Target(text.name)
    numbers = numbers_in(values, Kind.NUMERIC)
    by_size = numbers.null_count() == 0
    order = numbers.arg_sort() if by_size else values.arg_sort()
    return Target(text.name, tuple(values.gather(order).to_list()))


def guess_protected(text: pl.Series, minimum_rows: int) -> tuple[Protected, Rare]:
    """List values with enough rows; cut numbers with many values into bands.

    Ages are cut at 30, 45 and 60, others at rounded quartiles.
    """
    if not is_quantity(text.drop_nulls().unique()):
        values, rare = listed_values(text, minimum_rows)
        return Protected(text.name, values=values), rare
    numbers = numbers_in(text.drop_nulls(), Kind.NUMERIC).to_numpy()
    if "age" in name_parts(text.name):
        edges: Sequence[float] = AGE_EDGES
    else:
        edges = [float(f"{edge:.3g}") for edge in np.quantile(numbers, (0.25, 0.5, 0.75))]
    inside = {edge for edge in edges if numbers.min() < edge <= numbers.max()}
    return Protected(text.name, tuple(sorted(inside))), Rare()


def is_quantity(values: pl.Series) -> bool:
    """Return whether these are numbers, and too many or not whole, so that they are no codes."""
    numbers = numbers_in(values, Kind.NUMERIC)
    if numbers.null_count() or not bool(numbers.is_finite().all()):
        return False
    return len(values) > MAX_CODES or not _are_whole(numbers)


def _remark(text: pl.Series, values: pl.Series, numbers: pl.Series) -> str:
    """Describe what is unusual about a column of numbers, without its values."""
    remarks = []
    all_different = len(values) == len(text) and _are_whole(numbers)
    if all_different or "id" in name_parts(text.name):
        remarks.append("Remove this section if the numbers only identify rows.")
    if len(values) > 1 and bool(values.str.contains(DAY_IN_DIGITS).all()):
        remarks.append('If these are dates: kind = "date", format = "%Y%m%d".')
    if len(values) > MAX_CODES and bool(values.str.contains(DOT_BEFORE_THREE).all()):
        remarks.append(
            "Every number has a dot before three digits: if it separates thousands, set "
            'decimal = "," and thousands = "." in [data].'
        )
    far, _ = outlier_rows(numbers_in(text, Kind.NUMERIC).to_numpy())
    if far.any():
        remarks.append(
            f"{counted(int(far.sum()), 'row is', 'rows are')} very far from all others: correct "
            "such values, or add them to missing_values in [data]."
        )
    return " ".join(remarks)


def _other_numbers(values: pl.Series) -> str:
    """Return a remark if texts are numbers in another format than the file's other columns."""
    guess = notation.guess_number_format([values], PLAIN)
    if guess == PLAIN:
        return ""
    return (
        f'numbers with decimal = "{guess.decimal}" and thousands = "{guess.thousands}", which '
        "other columns of a file do not have: give --decimal and --thousands, or use one format"
    )


def _limits(numbers: pl.Series) -> tuple[float, float]:
    finite = numbers.to_numpy()
    return float(finite.min()), float(finite.max())


def _are_whole(numbers: pl.Series) -> bool:
    return bool((numbers == numbers.round()).all())


def why_no_feature(text: pl.Series, values: pl.Series, numbers: pl.Series) -> str:
    """Say why a column of numbers should not be a feature; "" if it may be one."""
    name = text.name.strip().lower()
    whole = bool((numbers == numbers.round()).all())
    if whole and re.match(INDEX_NAMES, name):
        return "numbers the rows, as its name says"
    if whole and counts_rows(text, numbers_in(text, Kind.NUMERIC)):
        return "numbers the rows: it counts them in order"
    if whole and len(values) == len(text) and {"id", "identifier"} & set(name_parts(name)):
        return "only identifies rows: its numbers are all different"
    if re.match(WEIGHT_NAMES, name):
        return "is a weight of rows by its name, and weights are not used"
    return ""


MAX_ROWS_NAMED = 3
# Classes with a typo, not a quantity: few values, and two of them in all but a few rows.
MAX_STRAYS = 20
MAX_STRAY_SHARE = 0.05


def check_strays(tables: Sequence[FileTable], pooled: pl.Series, what: str, fix: str) -> None:
    """Refuse numbers that hardly occur in a column of two others, with their rows."""
    strays, column = stray_values(pooled), pooled.name
    if not strays:
        return
    present = pooled.drop_nulls()
    usual = present.filter(~present.is_in(list(strays)))
    both = " or ".join(sorted(usual.unique().to_list()))
    raise InputError(
        f"{what} '{column}' is {both} in {len(usual):,} of {counted(len(present), 'row')}, and "
        f"something else in {_rows_with(tables, column, strays)}: correct them, or {fix}"
    )


def rare_classes(
    tables: Sequence[FileTable], pooled: pl.Series, target: Target, minimum: int
) -> tuple[str, ...]:
    """Say which classes have so few rows that they may be typos."""
    if target.is_quantity:
        return ()
    counts = dict(pooled.drop_nulls().value_counts(name="rows").rows())
    return tuple(
        f"class '{name}' has {counted(counts[name], 'row')} "
        f"({_rows_with(tables, target.column, [name])}): if it is a typo, correct it"
        for name in target.classes
        if counts[name] < minimum <= max(counts.values())
    )


def _rows_with(tables: Sequence[FileTable], column: str, values: Sequence[str]) -> str:
    """Say in which rows of which files a column has one of these values, the first few of many."""
    rows = [
        f"{table.source} row {row}"
        for table in tables
        for row in table.row_numbers.filter(
            by_value(plain_texts(table, column)).is_in(list(values))
        )
    ]
    return first_few(rows, MAX_ROWS_NAMED)


def stray_values(text: pl.Series) -> tuple[str, ...]:
    """Return the numbers that hardly occur in a column of two others, which are probably typos.

    >>> stray_values(pl.Series(["0", "1"] * 50 + ["0.5"])), stray_values(pl.Series(["0", "1", "2"]))
    (('0.5',), ())
    """
    counts = text.drop_nulls().value_counts(sort=True, name="rows")
    if not 2 < len(counts) <= MAX_STRAYS or not is_quantity(counts[text.name]):
        return ()
    strays, few = counts[2:], MAX_STRAY_SHARE * int(counts["rows"].sum())
    is_stray = int(strays["rows"].sum()) <= few < int(counts["rows"][1])
    return tuple(strays[text.name].to_list()) if is_stray else ()


def plain_texts(table: FileTable, column: str) -> pl.Series:
    """Return a column as texts, with numbers and dates in plain notation."""
    text = text_of(table.frame[column], PROPOSED_MISSING_VALUES)
    return with_iso_dates(with_plain_numbers(text, table.format), table.format)
