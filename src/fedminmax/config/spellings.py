"""Labels, groups and categories, read by value, independent of how a file spells them.

A whole number, a float and a boolean of the same value are the same (1, 1.0, true), in text and in
typed files, and so are letters with accents, however Unicode composes them. Texts that differ only
in letter case or spaces may be one value or two. That is not guessed: they are refused, unless the
schema merges such spellings, or lists both.
"""

from collections.abc import Sequence
from functools import lru_cache

import polars as pl

# A leading zero or an exponent means a code (007, 1E50), which is text.
WHOLE = r"^[+-]?(?:0|[1-9][0-9]*)(?:\.0*)?$"
BROKEN = r"^[+-]?(?:0|[1-9][0-9]*)?\.[0-9]*[1-9]0*$"
NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"
BOOLEANS = {"true": "1", "false": "0"}


def _value_of(plain: pl.Expr) -> pl.Expr:
    """Return what is equal for equal numbers and booleans, of trimmed texts."""
    whole = plain.str.extract(r"^\+?(-?[0-9]+)").str.replace(r"^-0$", "0")
    broken = plain.str.strip_prefix("+").str.strip_chars_end("0").str.replace(r"^(-?)\.", "${1}0.")
    return (
        pl.when(plain.str.contains(WHOLE))
        .then(whole)
        .when(plain.str.contains(BROKEN))
        .then(broken)
        .otherwise(plain.str.to_lowercase().replace_strict(BOOLEANS, default=plain))
    )


# Built once: most columns have few values, and building these takes longer than evaluating them.
VALUE = _value_of(pl.col("plain")).alias("value")
FOLDED = pl.col("value").str.normalize("NFKC").str.to_lowercase().str.replace_all(r"\s+", " ")
SHOWN = (
    pl.when(pl.col("value").str.contains(NUMBER))
    .then(pl.col("value"))
    .otherwise(pl.col("spelled").str.normalize("NFC"))
)


def by_value(text: pl.Series) -> pl.Series:
    """Return trimmed texts in which equal numbers and booleans are equal.

    >>> by_value(pl.Series(["1", "+1.0", "-0.0", " 2.50", "TRUE", "007", "Ill"])).to_list()
    ['1', '1', '0', '2.5', '1', '007', 'Ill']
    """
    plain = text.str.strip_chars().str.normalize("NFC")
    return plain.to_frame("plain").select(VALUE).to_series().alias(text.name)


def spellings(texts: pl.Series, missing_values: Sequence[str] = ()) -> pl.DataFrame:
    """Return the distinct spellings of a column's values, without missing ones.

    ``value`` is equal for equal values, ``folded`` also for values that differ only in letter case
    or spaces. ``shown`` differs if a user may see two values.
    """
    spelled = texts.drop_nulls().unique(maintain_order=True).alias("spelled")
    frame = pl.DataFrame([spelled, by_value(spelled).alias("value")])
    if missing_values:
        missing = _missing_texts(tuple(missing_values))
        frame = frame.filter(
            ~pl.col("value").is_in(missing) & ~pl.col("spelled").str.strip_chars().is_in(missing)
        )
    return frame.with_columns(folded=FOLDED, shown=SHOWN)


@lru_cache(maxsize=100)  # the same for every column of every site
def _missing_texts(missing_values: tuple[str, ...]) -> tuple[str, ...]:
    by_their_value = by_value(pl.Series(missing_values, dtype=pl.String))
    return *missing_values, *by_their_value.to_list()


@lru_cache(maxsize=1_000)  # the same at every site
def spellings_of(listed_values: tuple[str, ...]) -> pl.DataFrame:
    """Return the spellings of a list of values."""
    return spellings(pl.Series(listed_values, dtype=pl.String))


def variants(written: pl.DataFrame, listed_values: Sequence[str]) -> tuple[str, str] | None:
    """Return two spellings that may be one value, both of the column or one of the list.

    Listed spellings are different values on purpose.
    """
    shown: dict[str, str] = {}
    for folded, spelling in written.select("folded", "shown").rows():
        other = shown.setdefault(folded, spelling)
        if spelling != other and not {spelling, other} <= set(listed_values):
            return other, spelling
    listed = spellings_of(tuple(listed_values))
    by_folded = dict(listed.select("folded", "spelled").rows())
    unlisted = written.filter(~pl.col("value").is_in(listed["value"].to_list()))
    for folded, spelling in unlisted.select("folded", "shown").rows():
        if folded in by_folded:
            return by_folded[folded], spelling
    return None
