"""What leaves a site for a configuration, in plain words."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from fedminmax.core.counted import counted
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.safe_rate import POWER_ITERATIONS
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.groups import group_name, sort_groups
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.schema import Kind, Schema
from fedminmax.data.tables.words import listed
from fedminmax.federation.certify import MAX_ROUNDS, PROVER
from fedminmax.federation.group_policy import group_counts
from fedminmax.federation.network_plan import PlannedRun
from fedminmax.federation.planned_runs import planned_runs, rate_is_open
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod, asks_again, sums_over_rows

BYTES_PER_NUMBER = 4
BYTES_PER_SUM = 8


def what_leaves(config: TableConfig, train: ParsedRows, measured: Sequence[str]) -> Iterator[str]:
    """Say what leaves before, in and after the rounds; ``measured`` groups have held-out rows."""
    yield from _before(config.schema, train)
    runs = planned_runs(config.method)
    if rate_is_open(runs):
        yield (
            f"{POWER_ITERATIONS} times before the first round: one vector per group, as long as "
            "the features of a row (sums of x (x . v) over its rows, to choose a safe step)"
        )
    for run in runs:
        if sums_over_rows(CARDS[run.method].build({})):
            when = f"in each of {run.rounds:,} rounds of {run.method}"
            yield from _sums_by_group(when, run.build(), config, train)
        else:
            yield _in_a_round(run, most_parameters(config))
    if config.validation:
        yield (
            "with each of these rounds: the sums of losses and of squared losses of the rows that "
            "are set aside to choose the round by, and their number, by group; of groups with "
            "fewer of them than the minimum here nothing is set aside"
        )
    if config.method.certify:
        when = (
            f"after training, up to {MAX_ROUNDS} times, to prove how good the model of "
            f"{config.method.name} is"
        )
        yield from _sums_by_group(when, PROVER, config, train)
    if measured:
        names = " and ".join(run.method for run in runs)
        yield (
            f"after training, for the model of {names}: the number of held-out rows of "
            f"{listed(measured)}, the sums of their scores (risk, accuracy, error rates) and the "
            "sums of products of these scores (for intervals)"
        )


def most_parameters(config: TableConfig) -> int:
    """Return how many numbers the model has at most, if every category and gap occurs."""
    widths = [
        len(feature.categories) + 1 if feature.kind is Kind.CATEGORY else 2
        for feature in config.schema.features
    ]
    layers = (sum(widths), *config.model.hidden, len(config.schema.target.classes) or 1)
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(layers))


def _before(schema: Schema, train: ParsedRows) -> Iterator[str]:
    features = schema.features
    categories = [feature.column for feature in features if feature.kind is Kind.CATEGORY]
    quantities = [feature.column for feature in features if feature.kind is not Kind.CATEGORY]
    told = "pairs of group and class"
    if schema.target.is_quantity:
        quantities.append(schema.target.column)
        told = "groups"
    yield f"once: the rows of each of {len(summarise(train, schema).strata)} {told}"
    if categories:
        yield f"once: how often each listed category occurs in {', '.join(categories)}"
    if quantities:
        yield f"once: count, sum and sum of squares of {', '.join(quantities)}"


def _sums_by_group(
    when: str, method: AnyMethod[Any], config: TableConfig, train: ParsedRows
) -> Iterator[str]:
    """Say what leaves for a method that looks ahead: more in a round, in far fewer rounds."""
    parameters, schema = most_parameters(config), config.schema
    outputs = len(schema.target.classes) or 1
    columns = parameters // outputs
    told, numbers = f"a gradient as long as the model (at most {parameters:,} numbers)", parameters
    curvature = not config.model.hidden and getattr(method, "curvature", False)
    if curvature:
        linear = LinearStructure(outputs, columns - 1, intercept=True, loss=config.model.loss)
        told += (
            " and curvature, which is weighted sums of products of every two columns (at most "
            f"{linear.curvature_numbers:,} numbers)"
        )
        numbers += linear.curvature_numbers
    yield (
        f"{when}, for each group: its loss sum, its row count, {told}; at most "
        f"{numbers * BYTES_PER_SUM:,} bytes. The method uses {method.reveals.value}; whoever runs "
        "the server can look at yours by itself"
    )
    few = [key for key, rows in group_counts(train).items() if rows <= columns]
    if few and curvature:
        names = listed([group_name(key, schema) for key in sort_groups(few, schema)])
        yield (
            f"{names}: here no more rows than the {columns:,} columns that a row may have. "
            "Products summed over so few rows nearly show the rows themselves; --minimum-group "
            f"{columns + 1} keeps such groups from being told of"
        )


def _in_a_round(run: PlannedRun, numbers: int) -> str:
    card = CARDS[run.method]
    # Methods for equal rates tell sums by group and class, and some a second gradient.
    rates = ", figures of how unequal the groups' rates are" if card.parity else ""
    vectors = "one or more vectors" if card.parity or asks_again(card.build({})) else "one vector"
    return (
        f"in each of {counted(run.rounds, 'round')} of {run.method}: loss sums and row counts by "
        "group"
        f"{rates}, and {vectors} as long as the model (at most {numbers:,} numbers, "
        f"{numbers * BYTES_PER_NUMBER:,} bytes). The method uses {card.reveals}; whoever "
        "runs the server can look at yours by itself"
    )
