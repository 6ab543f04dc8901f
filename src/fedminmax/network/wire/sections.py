"""What travels, as named sections of numbers: one description of each record, masked or not.

Unmasked, the sections are the vectors of a message (``wire.messages``). Masked, they are rounded
and added up (``secure.fixed_point``), and the total reads like the record of one site with all
rows. Sections are tensors; exact sums under masks are fractions.

A site's summary of its training rows as JSON and back: counts and exact sums, no rows.

Sums of floating-point numbers are integer multiples of a power of two, and are sent as such: the
encoding computed from them is bit-identical to that of the pooled rows.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import product
from typing import Annotated, Any

import torch
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError
from torch import Tensor

from fedminmax.config.schema import Kind, MissingGroup, Schema
from fedminmax.core.exact_sums import ExactSums
from fedminmax.core.messages import Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.data.tables.groups import MERGED_VALUE, OTHER_VALUE, is_known, merged_key
from fedminmax.data.tables.site_summary import SiteSummary, Stratum
from fedminmax.metrics.code_sums import CodeShape, CodeSums
from fedminmax.metrics.sums import ScoreSums
from fedminmax.network.wire.codec import RefusedError, checked_bytes

Sections = dict[str, Any]
SCORE_SECTIONS = ("counts", "totals", "products", "curves")
CODE_SECTIONS = tuple(own.name for own in fields(CodeSums))
# More pairs of group and class than a site may report unmasked.
MAX_STRATA = 10_000


def sections_of_sums(sums: Sums) -> Sections:
    """Return a reply as sections; the step keeps its precision, as in the simulation."""
    sections = {
        "step": sums.step.detach().cpu(),
        "scales": torch.tensor([sums.scale, sums.curvature], dtype=torch.float64),
        "group_loss": sums.group_loss,
        "group_count": sums.group_count,
        "site_loss": sums.site_loss,
        "site_count": sums.site_count,
        "statistics": sums.statistics,
        "evaluations": torch.tensor([sums.gradient_evaluations]),
    }
    return sections | (sections_of_losses(sums.validation) if len(sums.validation.count) else {})


def sums_of(sections: Mapping[str, Any]) -> Sums:
    """Return the reply that these sections are of; nothing of it has been checked."""
    scale, curvature = sections["scales"].tolist()
    return Sums(
        step=sections["step"],
        scale=scale,
        curvature=curvature,
        group_loss=sections["group_loss"],
        group_count=sections["group_count"],
        site_loss=sections["site_loss"],
        site_count=sections["site_count"],
        statistics=sections["statistics"],
        gradient_evaluations=int(sections["evaluations"][0]),
        validation=losses_of(sections) if "validation_loss" in sections else NO_LOSSES,
    )


def sections_of_losses(losses: LossSums) -> Sections:
    """Return losses on validation rows as sections."""
    return {
        "validation_loss": losses.loss,
        "validation_squares": losses.squares,
        "validation_count": losses.count,
    }


def losses_of(sections: Mapping[str, Any]) -> LossSums:
    """Return the losses on validation rows that these sections are of."""
    loss, squares = (_floats(sections[f"validation_{name}"]) for name in ("loss", "squares"))
    return LossSums(loss, squares, sections["validation_count"])


@dataclass(frozen=True)
class MeasuredShape:
    """Lines, scores and counts by score of models on held-out rows, and their sums by code."""

    lines: int
    scores: int
    curves: int
    codes: CodeShape


@dataclass(frozen=True, eq=False)
class SumsOfModels:
    """Sums of trained models' scores on held-out rows, and by group and code of training rows."""

    scores: ScoreSums
    codes: CodeSums


def sections_of_models(sums: SumsOfModels) -> Sections:
    """Return sums of models as sections."""
    scores = {name: getattr(sums.scores, name).flatten() for name in SCORE_SECTIONS}
    codes = {name: getattr(sums.codes, name).flatten() for name in CODE_SECTIONS}
    return scores | codes


def sums_of_models(sections: Mapping[str, Any], shape: MeasuredShape) -> SumsOfModels:
    """Return the sums of models that these sections are of."""
    lines, scores = shape.lines, shape.scores
    codes = {
        name: _floats(sections[name]).reshape(own) for name, own in shape.codes.numbers.items()
    }
    return SumsOfModels(
        ScoreSums(
            sections["counts"],
            _floats(sections["totals"]).reshape(lines, scores),
            _floats(sections["products"]).reshape(lines, scores, scores),
            sections["curves"].reshape(lines, shape.curves),
        ),
        CodeSums(**codes),
    )


def sections_of_summary(summary: SiteSummary, schema: Schema) -> Sections:
    """Return a summary of training rows as sections; all groups are those that the plan lists."""
    quantities = [summary.quantities[name] for name in quantities_of(schema)]
    strata = strata_of(schema)
    if not summary.strata.keys() <= set(strata):
        raise RefusedError("this site has a group that the plan does not list")
    counts = [count for name in categories_of(schema) for count in summary.categories[name]]
    return {
        "rows": torch.tensor([summary.rows]),
        "quantity_rows": _whole([sums.count for sums in quantities]),
        "quantity_sums": [part for sums in quantities for part in (sums.total, sums.squares)],
        "categories": _whole(counts),
        "strata": _whole([summary.strata.get(stratum, 0) for stratum in strata]),
        "target_rows": torch.tensor([summary.target.count]),
        "target_sums": [summary.target.total, summary.target.squares],
    }


def summary_of(sections: Mapping[str, Any], schema: Schema) -> SiteSummary:
    """Return the summary that these sections are of; nothing of it has been checked."""
    parts, counts = iter(sections["quantity_sums"]), iter(sections["categories"].tolist())
    rows = zip(strata_of(schema), sections["strata"].tolist(), strict=True)
    quantities = zip(quantities_of(schema), sections["quantity_rows"].tolist(), strict=True)
    return SiteSummary(
        rows=int(sections["rows"][0]),
        quantities={name: ExactSums(count, next(parts), next(parts)) for name, count in quantities},
        categories={
            name: tuple(next(counts) for _ in range(length))
            for name, length in categories_of(schema).items()
        },
        strata={stratum: count for stratum, count in rows if count},
        target=ExactSums(int(sections["target_rows"][0]), *sections["target_sums"]),
    )


def strata_of(schema: Schema) -> tuple[Stratum, ...]:
    """Return all pairs of a group that a listed value can make, and a class."""
    by_column = [
        (
            *(entry.bands or entry.values),
            *([OTHER_VALUE] if schema.unlisted_group is MissingGroup.OWN_GROUP else []),
            *([None] if schema.missing_group is MissingGroup.OWN_GROUP else []),
        )
        for entry in schema.protected
    ]
    classes = max(len(schema.target.classes), 1)
    if math.prod(map(len, by_column)) * classes > MAX_STRATA:
        raise RefusedError(
            f"the plan's groups and classes make more than {MAX_STRATA:,} pairs, which cannot be "
            "counted under masks"
        )
    keys = (*product(*by_column), merged_key(schema))
    return tuple((key, label) for key in keys for label in range(classes))


def quantities_of(schema: Schema) -> tuple[str, ...]:
    """Return the columns of numbers."""
    return tuple(f.column for f in schema.features if f.kind is not Kind.CATEGORY)


def categories_of(schema: Schema) -> dict[str, int]:
    """Return how many counts each column of categories has: listed ones, missing, not listed."""
    return {f.column: len(f.categories) + 2 for f in schema.features if f.kind is Kind.CATEGORY}


def _floats(numbers: Tensor | Sequence[Any]) -> Tensor:
    """Return a section's numbers, rounded once if they are exact fractions."""
    if isinstance(numbers, Tensor):
        return numbers
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def _whole(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


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
