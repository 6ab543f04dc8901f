"""What leaves a site for a configuration, in plain words."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fedminmax.core.safe_rate import POWER_ITERATIONS
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.schema import Kind, Schema
from fedminmax.data.tables.words import listed
from fedminmax.federation.network_plan import PlannedRun
from fedminmax.federation.planned_runs import planned_runs, rate_is_open
from fedminmax.methods.cards_of_parity import OF_PARITY
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import asks_again

BYTES_PER_NUMBER = 4


def what_leaves(config: TableConfig, train: ParsedRows, measured: Sequence[str]) -> Iterator[str]:
    """Say what leaves before, in and after the rounds; ``measured`` groups have held-out rows."""
    yield from _before(config.schema, train)
    runs = planned_runs(config.method)
    if rate_is_open(runs):
        yield (
            f"{POWER_ITERATIONS} times before the first round: one vector per group, as long as "
            "the features of a row (sums of x (x . v) over its rows, to choose a safe step)"
        )
    numbers = most_parameters(config)
    for run in runs:
        yield _in_a_round(run, numbers)
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


def _in_a_round(run: PlannedRun, numbers: int) -> str:
    card = CARDS[run.method]
    # Methods for equal rates tell sums by group and class, and some a second gradient.
    parity = card in OF_PARITY
    rates = ", figures of how unequal the groups' rates are" if parity else ""
    vectors = "one or more vectors" if parity or asks_again(card.build({})) else "one vector"
    return (
        f"in each of {run.rounds:,} rounds of {run.method}: loss sums and row counts by group"
        f"{rates}, and {vectors} as long as the model (at most {numbers:,} numbers, "
        f"{numbers * BYTES_PER_NUMBER:,} bytes). The method uses {card.reveals}; whoever "
        "runs the server can look at yours by itself"
    )
