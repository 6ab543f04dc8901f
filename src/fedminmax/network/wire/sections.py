"""What travels, as named sections of numbers: one description of each record, masked or not.

Unmasked, the sections are the vectors of a message (``wire.messages``). Masked, they are rounded
and added up (``secure.fixed_point``), and the total reads like the record of one site with all
rows. Sections are tensors; exact sums under masks are fractions.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.schema import Kind, MissingGroup, Schema
from fedminmax.core.exact_sums import ExactSums
from fedminmax.core.messages import Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.data.tables.groups import OTHER_VALUE, merged_key
from fedminmax.data.tables.site_summary import SiteSummary, Stratum
from fedminmax.metrics.sums import ScoreSums
from fedminmax.network.wire.codec import RefusedError

Sections = dict[str, Any]
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


def sections_of_scores(sums: ScoreSums) -> Sections:
    """Return sums of scores as sections."""
    return {name: getattr(sums, name).flatten() for name in ("counts", "totals", "products")}


def scores_of(sections: Mapping[str, Any], lines: int, scores: int) -> ScoreSums:
    """Return the sums of so many scores on so many lines that these sections are of."""
    return ScoreSums(
        sections["counts"],
        _floats(sections["totals"]).reshape(lines, scores),
        _floats(sections["products"]).reshape(lines, scores, scores),
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
