"""A site's summary of its training rows as JSON and back: counts and exact sums, no rows.

Sums of floating-point numbers are integer multiples of a power of two, and are sent as such: the
encoding computed from them is bit-identical to that of the pooled rows.
"""

import re
import sys
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError

from fedminmax.config.schema import Schema
from fedminmax.core.exact_sums import ExactSums
from fedminmax.data.tables.groups import MERGED_VALUE, is_known, merged_key
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.network.wire.sections import MAX_STRATA, categories_of, quantities_of

MAX_SUMMARY_BYTES = 2**22
MAX_VALUE_LENGTH = 200
# Enough for squares of the largest and smallest floating-point numbers, summed over many rows.
MAX_EXPONENT = 2 * 1074
EXACT_NUMBER = re.compile(r"(-?[0-9a-f]{1,1200})/2\^([0-9]{1,4})", re.ASCII)
MAX_NUMBER = Fraction(sys.float_info.max)
Count = Annotated[int, Field(ge=0, le=2**53)]
Value = Annotated[str, Field(max_length=MAX_VALUE_LENGTH)]


def _read_fraction(number: Any) -> Fraction:
    """Read digits / 2^exponent, the digits in base 16."""
    parts = EXACT_NUMBER.fullmatch(number) if isinstance(number, str) else None
    if parts is None or int(parts[2]) > MAX_EXPONENT:
        raise ValueError("not an exact number")
    return Fraction(int(parts[1], 16), 2 ** int(parts[2]))


def _write_fraction(number: Fraction) -> str:
    # The denominator of a sum of floating-point numbers is a power of two.
    return f"{number.numerator:x}/2^{number.denominator.bit_length() - 1}"


Exact = Annotated[Fraction, BeforeValidator(_read_fraction), PlainSerializer(_write_fraction)]
# n, sum x and sum x^2 of one column.
ColumnSums = tuple[Count, Exact, Exact]


class SummaryMessage(BaseModel, extra="forbid", frozen=True):
    """A summary as it travels; a stratum is a group, a class and their rows."""

    rows: Count
    quantities: dict[str, ColumnSums]
    categories: dict[str, tuple[Count, ...]]
    strata: Annotated[
        tuple[tuple[tuple[Value | None, ...], Count, Annotated[int, Field(ge=1, le=2**53)]], ...],
        Field(max_length=MAX_STRATA),
    ]
    target: ColumnSums


def summary_to_bytes(summary: SiteSummary) -> bytes:
    """Write a summary."""
    message = SummaryMessage.model_construct(
        rows=summary.rows,
        quantities={name: _sums(sums) for name, sums in summary.quantities.items()},
        categories={name: tuple(counts) for name, counts in summary.categories.items()},
        strata=tuple((*stratum, rows) for stratum, rows in summary.strata.items()),
        target=_sums(summary.target),
    )
    return message.model_dump_json().encode()


def summary_from_bytes(
    message: object, schema: Schema, site: str, *, counted: bool = True
) -> SiteSummary:
    """Read a site's summary and refuse one that is impossible (``check_summary``)."""
    content = checked_bytes(message, MAX_SUMMARY_BYTES, site)
    try:
        came = SummaryMessage.model_validate_json(content, strict=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:100]
        raise RefusedError(f"{site} sent no valid summary ({where or 'not JSON'})") from error
    strata = {(group, label): rows for group, label, rows in came.strata}
    if len(strata) != len(came.strata):
        raise RefusedError(f"{site} sent impossible counts by group and class")
    summary = SiteSummary(
        rows=came.rows,
        quantities={name: ExactSums(*sums) for name, sums in came.quantities.items()},
        categories=came.categories,
        strata=strata,
        target=ExactSums(*came.target),
    )
    check_summary(summary, schema, site, counted=counted)
    return summary


def check_summary(summary: SiteSummary, schema: Schema, site: str, *, counted: bool) -> None:
    """Refuse a summary that is impossible for this schema.

    If it is not ``counted``, it says of groups and categories only that they occur.
    """
    categories = categories_of(schema)
    same_columns = summary.categories.keys() == categories.keys()
    if not same_columns or summary.quantities.keys() != {*quantities_of(schema)}:
        raise RefusedError(f"{site} sent a summary of other columns than requested")
    targets = summary.rows if schema.target.is_quantity else 0
    if summary.target.count != targets or any(
        sums.count > summary.rows or not _possible(sums)
        for sums in (*summary.quantities.values(), summary.target)
    ):
        raise RefusedError(f"{site} sent sums that are impossible for {summary.rows:,} rows")
    for name, counts in summary.categories.items():
        whole = not counted or sum(counts) == summary.rows
        if len(counts) != categories[name] or not whole:
            raise RefusedError(f"{site} sent impossible counts of column '{name}'")
    classes = max(len(schema.target.classes), 1)
    if (counted and sum(summary.strata.values()) != summary.rows) or any(
        len(key) != len(schema.protected) or label >= classes for key, label in summary.strata
    ):
        raise RefusedError(f"{site} sent impossible counts by group and class")
    for key in {key for key, _ in summary.strata} - {merged_key(schema)}:
        for entry, value in zip(schema.protected, key, strict=True):
            if value == MERGED_VALUE or not is_known(value, entry):
                raise RefusedError(f"{site} sent an unknown band or value of '{entry.column}'")


def _possible(sums: ExactSums) -> bool:
    """Return whether no number exceeds the largest float and (sum x)^2 <= n sum x^2 holds.

    The latter is by Cauchy and Schwarz; together they force the sums of no rows to be 0.
    """
    within = sums.squares <= sums.count * MAX_NUMBER**2
    return within and sums.total**2 <= sums.count * sums.squares


def _sums(sums: ExactSums) -> ColumnSums:
    return sums.count, sums.total, sums.squares
