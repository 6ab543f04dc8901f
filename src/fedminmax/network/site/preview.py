"""A preview for a site, without any network: its table as a job would read it, and what it sends.

``list_disclosures`` describes in plain sentences what a site sends for a configuration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedminmax.config.planned_runs import PlannedRun, needs_learning_rate, planned_runs
from fedminmax.config.read import TableConfig
from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.bounds import POWER_ITERATIONS
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.noise import Unit
from fedminmax.core.privacy.ledger import before_and_after, read_ledger
from fedminmax.core.text import counted, quoted
from fedminmax.data.tables import agreed_values
from fedminmax.data.tables.bins import MAX_BINS, MAX_CATEGORIES, MAX_CODES, PARTS, REFINEMENTS
from fedminmax.data.tables.data_warnings import (
    constant_target_warnings,
    leak_warnings,
    protected_copy_warnings,
)
from fedminmax.data.tables.groups import GroupKey, group_name, sort_groups
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.data.tables.site_summary import summarise
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod, asks_again, sums_over_rows
from fedminmax.metrics.auroc import BINS
from fedminmax.metrics.code_sums import MAX_OUTPUTS
from fedminmax.network.site import policy
from fedminmax.network.site.agreeing import completed_rows
from fedminmax.network.site.privacy import SPENT_FILE, planned_line
from fedminmax.network.site.settings import SiteSettings, SmallGroups
from fedminmax.network.wire.plan import digest_of, masking_fault, plan_of_config, privacy_fault
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.additive_class import MAX_ROUNDS as ROUNDS_OF_CLASS
from fedminmax.training.additive_class import MOST_CELLS
from fedminmax.training.certify import MAX_ROUNDS, PROVER

BYTES_PER_NUMBER = 4
BYTES_PER_SUM = 8
CHECK = "check"


def list_disclosures(
    config: TableConfig, train: ParsedRows, measured: Sequence[str]
) -> Iterator[str]:
    """Say what leaves before, in and after the rounds; ``measured`` groups have held-out rows."""
    if config.audit:
        yield from _of_an_audit(config, train)
        return
    runs = planned_runs(config.method)
    if config.privacy is not None:
        yield from _with_noise(config, runs[0])
    else:
        yield from _without_noise(config, train, runs)
    if measured:
        names = " and ".join(run.method for run in runs)
        noise = ", without noise" if config.privacy is not None else ""
        yield (
            f"after training{noise}, for the model of {names}: the number of held-out rows of "
            f"{quoted(measured)}, the sums of their scores (risk, accuracy, error rates), the "
            "sums of products of these scores (for intervals) and, of two classes, counts of "
            f"records by group, class and score, in {BINS} steps of the score, and by the scores "
            "of two models (for AUROC)"
        )


def _of_an_audit(config: TableConfig, rows: ParsedRows) -> Iterator[str]:
    """Yield what leaves where predictions are measured; nothing is trained."""
    yield from _before(config.schema, rows)
    models = " and of ".join(quoted(own) for own in config.audit)
    yield (
        f"once, of the predictions in {models}: by group, the number of rows, the sums of their "
        "scores (risk, accuracy, error rates), the sums of products of these scores (for "
        "intervals) and, of two classes, counts of rows by class and prediction, in "
        f"{BINS} steps, and by the predictions of both models (for AUROC)"
    )


def _with_noise(config: TableConfig, run: PlannedRun) -> Iterator[str]:
    """Yield what leaves under a privacy guarantee: first what it does not cover."""
    features = config.schema.features
    quantities = [f.column for f in features if f.kind is not Kind.CATEGORY]
    if config.schema.target.is_quantity:
        quantities.append(config.schema.target.column)
    sums = f"; count, sum and sum of squares of {', '.join(quantities)}" if quantities else ""
    yield (
        "once, without noise: the number of training rows, and which of the listed groups and "
        f"categories occur{sums}"
    )
    moment = "" if config.model.hidden else " and the sum of products of every two columns"
    yield f"once, with noise: the rows of each group{moment}"
    yield (
        f"in each of {counted(run.rounds, 'round')} of {run.method}, with noise: loss sums by "
        f"group and sums of clipped gradients (at most {max_parameters(config):,} numbers for each "
        "group)"
    )


def _without_noise(
    config: TableConfig, train: ParsedRows, runs: Sequence[PlannedRun]
) -> Iterator[str]:
    yield from _before(config.schema, train)
    if config.model.has_codes:
        yield from _of_an_additive_model(config)
    if needs_learning_rate(runs):
        yield (
            f"{POWER_ITERATIONS} times before the first round: one vector per group, as long as "
            "the features of a row (sums of x (x . v) over its rows, to choose a safe step)"
        )
    for run in runs:
        if sums_over_rows(CARDS[run.method].build({})):
            when = f"in each of {run.rounds:,} rounds of {run.method}"
            yield from _sums_by_group(when, run.build(), config, train)
        else:
            yield _in_a_round(run, config)
    if config.validation:
        yield (
            "with each of these rounds: the sums of losses and of squared losses of the validation "
            "rows, and their number, by group; groups with fewer of them than the minimum here "
            "have no validation rows"
        )
    if config.method.certify:
        when = (
            f"after training, up to {MAX_ROUNDS} times, to prove how good the model of "
            f"{config.method.name} is"
        )
        yield from _sums_by_group(when, PROVER, config, train)
    if config.model.is_additive and len(config.schema.target.classes) <= MAX_OUTPUTS:
        names = " and ".join(run.method for run in runs)
        yield (
            f"once, after the last round, for the model of {names}: by group and by bin or "
            "category of every column, the number of training rows, and the sums of their slopes "
            "and second derivatives, to see where a group differs from an effect"
        )


def max_parameters(config: TableConfig) -> int:
    """Return the maximum number of parameters, if every category and missing value occurs."""
    outputs = len(config.schema.target.classes) or 1
    if config.model.is_additive:
        codes = [_max_codes(feature) for feature in config.schema.features]
        return outputs * (min(sum(codes), MAX_CODES) + config.model.pairs * MOST_CELLS**2 + 1)
    features, scores = config.schema.features, outputs if outputs > 2 else 1
    width = sum(len(own.categories) + 1 if own.kind is Kind.CATEGORY else 2 for own in features)
    if config.model.has_codes:
        width = len(features) * (scores + 1) + scores * (config.model.pairs + 1)
    layers = (width, *config.model.hidden, outputs)
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(layers))


def _max_codes(feature: Feature) -> int:
    """Return how many codes a column of an additive model has at most."""
    if feature.kind is Kind.CATEGORY:
        return min(len(feature.categories), MAX_CATEGORIES) + 2
    return (2 if feature.kind is Kind.BOOLEAN else MAX_BINS) + 1


def _of_an_additive_model(config: TableConfig) -> Iterator[str]:
    """Yield what sites send to agree on bins, smoothing and pairs."""
    features = config.schema.features
    numbers = [f.column for f in features if f.kind in (Kind.NUMERIC, Kind.DATE)]
    if numbers:
        yield (
            f"up to {1 + REFINEMENTS} times, to agree on bins: how many values of "
            f"{', '.join(numbers)} are in each cell of a grid; at first cells are at least a "
            f"sixteenth of a deviation wide, then those that hold many rows of all sites are "
            f"split in {PARTS}"
        )
    pairs = "; once, sums of slopes and bends by cell of every two columns" * (
        config.model.pairs > 0 and len(features) > 1
    )
    yield (
        f"up to {ROUNDS_OF_CLASS * (1 + bool(pairs))} times, to choose the smoothing: loss sum, "
        f"gradient and curvature of the plain mean over all groups together{pairs}"
    )


def _before(schema: Schema, train: ParsedRows) -> Iterator[str]:
    features = schema.features
    categories = [feature.column for feature in features if feature.kind is Kind.CATEGORY]
    quantities = [feature.column for feature in features if feature.kind is not Kind.CATEGORY]
    reported = "pairs of group and class"
    if schema.target.is_quantity:
        quantities.append(schema.target.column)
        reported = "groups"
    from_sites = [feature.column for feature in features if feature.from_sites]
    if from_sites:
        yield (
            f"once, to agree on the categories of {', '.join(from_sites)}: how many training rows "
            f"have each of {agreed_values.TABLES} x {agreed_values.BUCKETS:,} hashes of a value; "
            "then, as text and without masks, which values with at least "
            f"{agreed_values.MINIMUM_ROWS} rows over all sites occur here "
            "(sizes below are with this site's own values)"
        )
    yield f"once: the rows of each of {len(summarise(train, schema).strata)} {reported}"
    if categories:
        yield f"once: how often each listed category occurs in {', '.join(categories)}"
    if quantities:
        yield f"once: count, sum and sum of squares of {', '.join(quantities)}"


def _sums_by_group(
    when: str, method: AnyMethod[Any], config: TableConfig, train: ParsedRows
) -> Iterator[str]:
    """Yield what a method that looks ahead sends: more in a round, in far fewer rounds."""
    parameters, schema = max_parameters(config), config.schema
    outputs = len(schema.target.classes) or 1
    columns = max_parameters(replace(config, model=replace(config.model, hidden=()))) // outputs
    reported, numbers = (
        f"a gradient as long as the model (at most {parameters:,} numbers)",
        parameters,
    )
    starts = bool(config.model.hidden) and getattr(method, "linear_start", False)
    curvature = getattr(method, "curvature", False) and (starts or not config.model.hidden)
    if curvature and config.model.is_additive:
        # One matrix: it is nobody's but that of all groups together.
        curvature = False
        products = columns * (columns + 1) // 2 * max(outputs * (outputs - 1) // 2, 1)
        reported += (
            "; for all groups together also curvature, which is weighted sums over rows that have "
            f"the same two codes (at most {products:,} numbers)"
        )
        numbers += products
    if curvature:
        first = "in the first rounds " if starts else ""
        linear = LinearStructure(outputs, columns - 1, intercept=True, loss=config.model.loss)
        reported += (
            f" and {first}curvature, which is weighted sums of products of every two columns (at "
            "most "
            f"{linear.curvature_numbers:,} numbers)"
        )
        numbers += linear.curvature_numbers
    yield (
        f"{when}, for each group: its loss sum, its row count, {reported}; at most "
        f"{numbers * BYTES_PER_SUM:,} bytes. The method uses {method.reveals.value}; "
        f"{_who_sees(config)}"
    )
    few = [key for key, rows in policy.group_counts(train).items() if rows <= columns]
    if few and curvature:
        names = quoted([group_name(key, schema) for key in sort_groups(few, schema)])
        yield (
            f"{names}: here at most as many rows as the {columns:,} columns that a row may have. "
            "Products summed over so few rows nearly reveal the rows themselves; --suppress-below "
            f"{columns + 1} keeps such groups from being disclosed"
        )


def _who_sees(config: TableConfig) -> str:
    if config.secure_aggregation:
        return "yours is masked, and only the total over sites can be read"
    return "the server's operator can see yours separately"


def _in_a_round(run: PlannedRun, config: TableConfig) -> str:
    card, numbers = CARDS[run.method], max_parameters(config)
    size = BYTES_PER_SUM if config.secure_aggregation else BYTES_PER_NUMBER
    # Methods for equal rates send sums by group and class, and some a second gradient.
    rates = ", figures of how unequal the groups' rates are" if card.parity else ""
    vectors = "one or more vectors" if card.parity or asks_again(card.build({})) else "one vector"
    return (
        f"in each of {counted(run.rounds, 'round')} of {run.method}: loss sums and row counts by "
        "group"
        f"{rates}, and {vectors} as long as the model (at most {numbers:,} numbers, "
        f"{numbers * size:,} bytes). The method uses {card.reveals}; {_who_sees(config)}"
    )


@dataclass(frozen=True)
class SiteCheck:
    """The groups that the site would disclose, with their training rows, and what it would send.

    ``hidden`` are the site's groups that it would not disclose separately; ``warnings`` are for the
    site only. A run has ``planned`` questions, and the site answers at most ``questions``.
    """

    groups: dict[str, int]
    hidden: dict[str, int]
    leaves: tuple[str, ...]
    warnings: tuple[str, ...]
    planned: int
    questions: int


def agree_to(config: TableConfig, settings: SiteSettings, site: str) -> SiteSettings:
    """Return the settings of a site that agrees to this configuration, and to no other."""
    plan = plan_of_config(config, CHECK, [site], SiteRules())
    return replace(
        settings,
        columns=config.schema.columns,
        plan=digest_of(plan),
        max_rounds=max((run.rounds for run in plan.runs), default=0),
    )


def check_site(config: TableConfig, settings: SiteSettings, site: str) -> SiteCheck:
    """Read the table as a job would; refuse invalid rows and what the site's policy forbids."""
    schema = config.schema
    plan = plan_of_config(config, CHECK, [site], SiteRules())
    fault = masking_fault(plan) if config.secure_aggregation else None
    if fault is not None:
        raise InputError(
            f"secure_aggregation: {fault}; ask the coordinator to correct the configuration"
        )
    fault = privacy_fault(plan)
    if fault is not None:
        raise InputError(f"[privacy]: {fault}; ask the coordinator to correct the configuration")
    own = policy.read_own_rows(plan, settings, site)
    small = sort_groups(policy.small_groups(own.train, settings), schema)
    if small and settings.small_groups is SmallGroups.REFUSE:
        raise InputError(
            f"group '{group_name(small[0], schema)}' has fewer than {settings.suppress_below} rows "
            "here, and this site's policy does not disclose smaller groups; merge them with "
            "--small-groups merge, or do not take part"
        )
    config, own = _with_own_lists(config, own)
    schema = config.schema
    rows = policy.within_policy(own, schema, settings)
    reported, known = policy.group_counts(rows.train), policy.group_counts(own.train)
    # Groups without a training row here may have some at other sites: they are named as well.
    held_out = rows.held_out
    measured = policy.group_counts(policy.rows_to_measure(held_out, held_out.group_keys, settings))
    return SiteCheck(
        _by_name(reported, schema),
        _by_name({key: count for key, count in known.items() if key not in reported}, schema),
        tuple(list_disclosures(config, rows.train, list(_by_name(measured, schema)))),
        (
            *own.warnings,
            *constant_target_warnings({site: summarise(own.train, schema)}, schema),
            *(() if config.audit else leak_warnings([own.train], schema)),
            *protected_copy_warnings([own.train], schema),
        ),
        policy.planned_questions(plan),
        policy.limits_of(plan, settings).questions,
    )


def _with_own_lists(
    config: TableConfig, rows: policy.SiteRows
) -> tuple[TableConfig, policy.SiteRows]:
    """Return both with the lists that this site alone would have, where there are none."""
    features = rows.train.features
    lists = {
        column: agreed_values.common_values(
            features, column, agreed_values.bucket_counts(features, column)
        )
        for column in config.schema.open_columns
    }
    schema = agreed_values.with_lists(config.schema, lists)
    return replace(config, schema=schema), completed_rows(rows, schema)


def budget_of(
    config: TableConfig, settings: SiteSettings, site: str, kept: Path
) -> tuple[str, ...] | None:
    """Say what runs have spent on the table, and would have with this one; None without privacy.

    ``kept`` is where the site stores data between rounds.
    """
    promise = config.promise
    if promise is None:
        return None
    line = planned_line(plan_of_config(config, CHECK, [site], SiteRules()), settings)
    entries = read_ledger(kept / SPENT_FILE)
    before, after = before_and_after(entries, line)
    limit = settings.max_epsilon
    if limit is not None and after > limit:
        raise InputError(
            f"runs on this table have spent epsilon {before:.3g}, with this one it would be "
            f"{after:.3g}, and this site's limit is {limit:g}; raise --max-epsilon, or do not take "
            "part"
        )
    others = {entry.data for entry in entries} - {line.data}
    elsewhere = (
        f" Runs on {counted(len(others), 'other table')} of this site are counted apart: rows that "
        "are in several have spent on each."
        if others
        else ""
    )
    hidden = "one training row" if promise.unit is Unit.ROW else "all that this site has"
    promised = (
        f"Promised for {hidden}: (epsilon, delta) = ({promise.epsilon:g}, {promise.delta:g}), with "
        f"noise of {line.noise_multiplier:.3g} times what it can change; this site draws its share "
        "of the noise itself."
    )
    spent = (
        f"Spent on this table: epsilon {before:.3g} so far, {after:.3g} after one run of this "
        f"configuration; limit {'none' if limit is None else f'{limit:g}'}.{elsewhere}"
    )
    return promised, spent


def _by_name(counts: dict[GroupKey, int], schema: Schema) -> dict[str, int]:
    return {group_name(key, schema): counts[key] for key in sort_groups(counts, schema)}
