"""The sections of masked answers: what sites put into them, and what totals of them are.

Each question has a layout, which server and sites compute themselves (``secure.layouts``). Values
in and out are those that travel unmasked otherwise, so that a total reads like the answer of one
site with all rows.

The exponents of a round's layout follow from the order and the agreed sizes alone: the largest
numbers that these allow (``expected_reply``), with headroom. Sums that have no such limit (losses
on validation rows and scores, where a row's loss can be any number) travel as exact fractions.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedminmax.config.schema import Kind as Column
from fedminmax.config.schema import MissingGroup, Schema
from fedminmax.core.exact_sums import ExactSums
from fedminmax.core.messages import Order, SumRounding, Sums, zero_sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.data.tables.groups import OTHER_VALUE, merged_key
from fedminmax.data.tables.site_summary import SiteSummary, Stratum
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.metrics.sums import ScoreSums
from fedminmax.network.secure.fixed_point import Kind, Layout, Section, exponent_for
from fedminmax.network.wire.checks import expected_reply
from fedminmax.network.wire.codec import RefusedError

Values = dict[str, Any]
# More pairs of group and class than a site may report unmasked.
MAX_STRATA = 10_000


def summary_layout(schema: Schema) -> Layout:
    """Return the sections of a summary of training rows."""
    quantities, categories = _quantities(schema), _categories(schema)
    return Layout(
        (
            Section("rows", 1, Kind.COUNT),
            Section("known", len(quantities), Kind.COUNT),
            Section("sums", 2 * len(quantities), Kind.EXACT),
            Section("categories", sum(categories.values()), Kind.COUNT),
            Section("strata", len(strata_of(schema)), Kind.COUNT),
            Section("targets", 1, Kind.COUNT),
            Section("target_sums", 2, Kind.EXACT),
        )
    )


def summary_values(summary: SiteSummary, schema: Schema) -> Values:
    """Return a summary as sections."""
    quantities = [summary.quantities[name] for name in _quantities(schema)]
    strata = strata_of(schema)
    if not summary.strata.keys() <= set(strata):
        raise RefusedError("this site has a group that the plan does not list")
    counts = [count for name in _categories(schema) for count in summary.categories[name]]
    return {
        "rows": _whole([summary.rows]),
        "known": _whole([sums.count for sums in quantities]),
        "sums": [part for sums in quantities for part in (sums.total, sums.squares)],
        "categories": _whole(counts),
        "strata": _whole([summary.strata.get(stratum, 0) for stratum in strata]),
        "targets": _whole([summary.target.count]),
        "target_sums": [summary.target.total, summary.target.squares],
    }


def summary_of(values: Mapping[str, Any], schema: Schema) -> SiteSummary:
    """Return what these sections are of; nothing of it has been checked."""
    parts, known = values["sums"], values["known"].tolist()
    quantities = {
        name: ExactSums(count, *parts[2 * place : 2 * place + 2])
        for place, (name, count) in enumerate(zip(_quantities(schema), known, strict=True))
    }
    counts, categories = iter(values["categories"].tolist()), {}
    for name, length in _categories(schema).items():
        categories[name] = tuple(next(counts) for _ in range(length))
    rows = zip(strata_of(schema), values["strata"].tolist(), strict=True)
    return SiteSummary(
        rows=int(values["rows"][0]),
        quantities=quantities,
        categories=categories,
        strata={stratum: count for stratum, count in rows if count},
        target=ExactSums(int(values["targets"][0]), *values["target_sums"]),
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


def counts_layout(numbers: int) -> Layout:
    """Return the section of row counts."""
    return Layout((Section("counts", numbers, Kind.COUNT),))


def curvature_layout(numbers: int, squared_length: float, sites: int) -> Layout:
    """Return the section of sums of x (x . v); |M v| is at most the trace of M."""
    return Layout((_fixed("sums", numbers, squared_length, sites),))


def reply_layout(
    method: AnyMethod[Any], order: Order, everyone: Sender, validation_rows: Tensor, sites: int
) -> Layout:
    """Return the sections of replies to an order of all sites, who together are ``everyone``.

    ``validation_rows`` are empty where replies have no losses on such rows.
    """
    largest = largest_reply(order, everyone)
    expected = expected_reply(method, order, everyone, largest)
    step = expected.fixed + (expected.reach * everyone.lengths.rows if expected.reach else 0.0)
    limits = torch.cat([expected.lower.abs(), expected.upper.abs()])
    statistics = float(limits.max()) if len(limits) else 0.0
    scales = max(abs(expected.scale), abs(expected.curvature))
    groups = len(everyone.counts)
    sections: tuple[Section, ...] = (
        _fixed("step", expected.numbers, step, sites),
        _fixed("scales", 2, scales, sites),
        _fixed("group_loss", groups, float(largest.group_loss.max()), sites),
        Section("group_count", groups, Kind.COUNT),
        _fixed("statistics", len(expected.lower), statistics, sites),
        Section("evaluations", 1, Kind.COUNT),
    )
    if len(validation_rows):
        sections += losses_layout(everyone, validation_rows, sites).sections
    return Layout(sections)


def largest_reply(order: Order, everyone: Sender) -> Sums:
    """Return a reply with the largest losses that rows can have at the order's model."""
    losses = everyone.limits.max_loss_sums(everyone.counts, everyone.lengths)
    return replace(
        zero_sums(0, len(everyone.counts), 0),
        step=torch.zeros(0, dtype=order.parameters.dtype),
        group_loss=losses,
        group_count=everyone.counts,
    )


def reply_values(reply: Sums) -> Values:
    """Return a reply as sections."""
    values: Values = {
        "step": reply.step.detach().cpu().numpy(),
        "scales": np.array([reply.scale, reply.curvature]),
        "group_loss": reply.group_loss.numpy(),
        "group_count": reply.group_count.numpy(),
        "statistics": reply.statistics.numpy(),
        "evaluations": _whole([reply.gradient_evaluations]),
    }
    return values | (losses_values(reply.validation) if len(reply.validation.count) else {})


def reply_of(values: Mapping[str, Any]) -> Sums:
    """Return what these sections are of."""
    scale, curvature = values["scales"].tolist()
    return Sums(
        step=torch.from_numpy(values["step"]),
        scale=scale,
        curvature=curvature,
        group_loss=torch.from_numpy(values["group_loss"]),
        group_count=torch.from_numpy(values["group_count"]),
        site_loss=torch.zeros(0, dtype=torch.float64),
        site_count=torch.zeros(0, dtype=torch.int64),
        statistics=torch.from_numpy(values["statistics"]),
        gradient_evaluations=int(values["evaluations"][0]),
        validation=losses_of(values) if "validation_loss" in values else NO_LOSSES,
    )


def rounding_of(layout: Layout, sites: int) -> SumRounding:
    """Return how far the numbers of a reply's total over this many sites may be off."""
    exponents = {own.name: own.exponent for own in layout.sections if own.kind is Kind.FIXED}
    names = ("group_loss", "step", "statistics")
    return SumRounding(*(math.ldexp(0.5 * sites, -exponents[name]) for name in names))


def losses_layout(everyone: Sender, validation_rows: Tensor, sites: int) -> Layout:
    """Return the sections of losses on validation rows."""
    per_row, groups = everyone.limits.max_loss, len(validation_rows)
    rows = int(validation_rows.sum())
    return Layout(
        (
            _fixed_or_exact("validation_loss", groups, per_row * rows, sites),
            _fixed_or_exact("validation_squares", groups, per_row**2 * rows, sites),
            Section("validation_count", groups, Kind.COUNT),
        )
    )


def losses_values(losses: LossSums) -> Values:
    """Return losses on validation rows as sections."""
    return {
        "validation_loss": losses.loss.numpy(),
        "validation_squares": losses.squares.numpy(),
        "validation_count": losses.count.numpy(),
    }


def losses_of(values: Mapping[str, Any]) -> LossSums:
    """Return what these sections are of."""
    loss, squares = (_floats(values[f"validation_{name}"]) for name in ("loss", "squares"))
    return LossSums(loss, squares, torch.from_numpy(values["validation_count"]))


def scores_layout(lines: int, scores: int, largest: float, rows: int, sites: int) -> Layout:
    """Return the sections of sums of scores, of which a row has at most ``largest``."""
    return Layout(
        (
            Section("counts", lines, Kind.COUNT),
            _fixed_or_exact("totals", lines * scores, largest * rows, sites),
            _fixed_or_exact("products", lines * scores**2, largest**2 * rows, sites),
        )
    )


def scores_values(sums: ScoreSums) -> Values:
    """Return sums of scores as sections."""
    return {
        name: getattr(sums, name).flatten().numpy() for name in ("counts", "totals", "products")
    }


def scores_of(values: Mapping[str, Any], lines: int, scores: int) -> ScoreSums:
    """Return what these sections are of."""
    return ScoreSums(
        torch.from_numpy(values["counts"]),
        _floats(values["totals"]).reshape(lines, scores),
        _floats(values["products"]).reshape(lines, scores, scores),
    )


def _fixed(name: str, length: int, largest: float, sites: int) -> Section:
    """Return a section of numbers up to about ``largest``."""
    return Section(name, length, Kind.FIXED, exponent_for(largest, sites))


def _fixed_or_exact(name: str, length: int, largest: float, sites: int) -> Section:
    """Return a section of sums whose largest value may be unknown."""
    if math.isfinite(largest):
        return _fixed(name, length, largest, sites)
    return Section(name, length, Kind.EXACT)


def _floats(values: Any) -> Tensor:
    """Return a section's numbers, rounded once if they are exact fractions."""
    numbers = [float(value) for value in values] if isinstance(values, list) else values
    return torch.as_tensor(numbers, dtype=torch.float64)


def _quantities(schema: Schema) -> tuple[str, ...]:
    return tuple(f.column for f in schema.features if f.kind is not Column.CATEGORY)


def _categories(schema: Schema) -> dict[str, int]:
    """Return how many counts each column of categories has: listed ones, missing, not listed."""
    kind = Column.CATEGORY
    return {f.column: len(f.categories) + 2 for f in schema.features if f.kind is kind}


def _whole(numbers: list[int]) -> Any:
    return np.array(numbers, dtype=np.int64)
