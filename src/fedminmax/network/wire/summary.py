"""A site's summary of its training rows as JSON and back: counts and exact sums, no rows.

Sums of floating-point numbers are integer multiples of a power of two, and are sent as such: the
encoding computed from them is bit-identical to that of the pooled rows.
"""

import sys
from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedminmax.config.schema import Kind, Schema
from fedminmax.core.exact_sums import ExactSums
from fedminmax.data.tables.groups import MERGED_VALUE, GroupKey, is_known, merged_key
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.network.wire.codec import RefusedError, checked_bytes

MAX_SUMMARY_BYTES = 2**22
MAX_VALUE_LENGTH = 200
# Enough for squares of the largest and smallest floating-point numbers, summed over many rows.
MAX_EXPONENT = 2 * 1074
MAX_DIGITS = 1200
MAX_NUMBER = Fraction(sys.float_info.max)
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
Count = Annotated[int, Field(ge=0, le=2**53)]
Digits = Annotated[str, Field(max_length=MAX_DIGITS, pattern=r"^-?[0-9a-f]+$")]
Value = Annotated[str, Field(max_length=MAX_VALUE_LENGTH)]


class DyadicNumber(BaseModel):
    """digits / 2^exponent, the digits in base 16."""

    model_config = STRICT
    digits: Digits
    exponent: Annotated[int, Field(ge=0, le=MAX_EXPONENT)]


class SumsSection(BaseModel):
    """n, sum x and sum x^2 of one column."""

    model_config = STRICT
    count: Count
    total: DyadicNumber
    squares: DyadicNumber


class StratumSection(BaseModel):
    """Rows of one group and class."""

    model_config = STRICT
    group: list[Value | None]
    label: Count
    rows: Annotated[int, Field(ge=1, le=2**53)]


class SummarySections(BaseModel):
    """The whole message."""

    model_config = STRICT
    rows: Count
    quantities: dict[str, SumsSection]
    categories: dict[str, list[Count]]
    strata: Annotated[list[StratumSection], Field(max_length=10_000)]
    target: SumsSection


def summary_to_bytes(summary: SiteSummary) -> bytes:
    """Write a summary."""
    sections = SummarySections(
        rows=summary.rows,
        quantities={name: _sums_section(sums) for name, sums in summary.quantities.items()},
        categories={name: list(counts) for name, counts in summary.categories.items()},
        strata=[
            StratumSection(group=list(group), label=label, rows=rows)
            for (group, label), rows in summary.strata.items()
        ],
        target=_sums_section(summary.target),
    )
    return sections.model_dump_json().encode()


def summary_from_bytes(
    message: object, schema: Schema, site: str, *, counted: bool = True
) -> SiteSummary:
    """Read a site's summary and refuse one that is impossible for this schema.

    If it is not ``counted``, it says of groups and categories only that they occur.
    """
    content = checked_bytes(message, MAX_SUMMARY_BYTES, site)
    try:
        sections = SummarySections.model_validate_json(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:100]
        raise RefusedError(f"{site} sent no valid summary ({where or 'not JSON'})") from error
    _check(sections, schema, site, counted=counted)
    return SiteSummary(
        rows=sections.rows,
        quantities={name: _exact_sums(entry) for name, entry in sections.quantities.items()},
        categories={name: tuple(counts) for name, counts in sections.categories.items()},
        strata={(_key(entry), entry.label): entry.rows for entry in sections.strata},
        target=_exact_sums(sections.target),
    )


def _check(sections: SummarySections, schema: Schema, site: str, *, counted: bool) -> None:
    quantities = {f.column for f in schema.features if f.kind is not Kind.CATEGORY}
    categories = {f.column: f.categories for f in schema.features if f.kind is Kind.CATEGORY}
    if sections.quantities.keys() != quantities or sections.categories.keys() != categories.keys():
        raise RefusedError(f"{site} sent a summary of other columns than requested")
    sums = [*sections.quantities.values(), sections.target]
    targets = sections.rows if schema.target.is_quantity else 0
    if sections.target.count != targets or any(
        entry.count > sections.rows or not _possible(entry) for entry in sums
    ):
        raise RefusedError(f"{site} sent sums that are impossible for {sections.rows:,} rows")
    for name, counts in sections.categories.items():
        whole = not counted or sum(counts) == sections.rows
        if len(counts) != len(categories[name]) + 2 or not whole:
            raise RefusedError(f"{site} sent impossible counts of column '{name}'")
    keys = [(_key(entry), entry.label) for entry in sections.strata]
    classes = max(len(schema.target.classes), 1)
    if (
        len(set(keys)) != len(keys)
        or (counted and sum(entry.rows for entry in sections.strata) != sections.rows)
        or any(len(key) != len(schema.protected) or label >= classes for key, label in keys)
    ):
        raise RefusedError(f"{site} sent impossible counts by group and class")
    for key in {key for key, _ in keys} - {merged_key(schema)}:
        for entry, value in zip(schema.protected, key, strict=True):
            if value == MERGED_VALUE or not is_known(value, entry):
                raise RefusedError(f"{site} sent an unknown band or value of '{entry.column}'")


def _possible(entry: SumsSection) -> bool:
    """Return whether no number exceeds the largest float and (sum x)^2 <= n sum x^2 holds.

    The latter is by Cauchy and Schwarz; together they force the sums of no rows to be 0.
    """
    sums = _exact_sums(entry)
    within = sums.squares <= sums.count * MAX_NUMBER**2
    return within and sums.total**2 <= sums.count * sums.squares


def _key(entry: StratumSection) -> GroupKey:
    return tuple(entry.group)


def _sums_section(sums: ExactSums) -> SumsSection:
    return SumsSection(
        count=sums.count, total=_dyadic_number(sums.total), squares=_dyadic_number(sums.squares)
    )


def _dyadic_number(value: Fraction) -> DyadicNumber:
    # The denominator of a sum of floating-point numbers is a power of two.
    return DyadicNumber(digits=f"{value.numerator:x}", exponent=value.denominator.bit_length() - 1)


def _exact_sums(section: SumsSection) -> ExactSums:
    return ExactSums(section.count, _fraction(section.total), _fraction(section.squares))


def _fraction(number: DyadicNumber) -> Fraction:
    return Fraction(int(number.digits, 16), 2**number.exponent)
