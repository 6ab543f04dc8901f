"""The records in a run folder's files, checked by pydantic; unknown keys of newer versions pass.

Unset fields are not written: a run without a baseline has no key "change".
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from fedminmax.core.certificate import Certificate
from fedminmax.core.convergence import Convergence
from fedminmax.data.tables.census import Count
from fedminmax.data.tables.plain_fit import Departure
from fedminmax.methods.shared.excess_server import OwnRisks
from fedminmax.metrics.intervals import CONFIDENCE, MIN_ROWS

# The metric that training minimises: Brier score, or squared error.
RISK = "risk"
# The method's key of a model that was trained elsewhere and only measured.
AUDIT = "audit"


# Files may come from elsewhere: numbers too large to draw are damage.
MAX_NUMBER = 1e100
# None if there is nothing to measure: a group without test rows, an unseen group.
Number = Annotated[
    Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)] | None,
    BeforeValidator(lambda own: None if isinstance(own, float) and not math.isfinite(own) else own),
]
Confidence = Annotated[float, Field(gt=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER)]


class Interval(BaseModel, frozen=True):
    """A value and its interval; for a group also its test rows.

    A ``small`` group had too few training rows to be trained for.
    """

    value: Number
    low: Number
    high: Number
    rows: Count = 0
    small: bool = False

    @property
    def has_enough_rows(self) -> bool:
        """Whether this group has enough rows to be compared."""
        return self.rows >= MIN_ROWS and not self.small


class Metric(BaseModel, frozen=True):
    """One metric over all test rows and by group, in the order of the groups' names.

    The intervals of ``worst`` and ``difference`` account for the choice of these groups.
    """

    overall: Interval
    by_group: tuple[Interval, ...]
    worst_group: str | None
    difference: Interval
    worst: Interval | None


class Parity(BaseModel, frozen=True):
    """The difference and the ratio of a rate between groups; see ``metrics.parity``."""

    difference: Interval
    ratio: Interval
    highest: str | None
    lowest: str | None
    left_out: tuple[str, ...] = ()


class Measured(BaseModel, frozen=True):
    """All metrics on the test rows, and differences and ratios of rates between groups.

    Groups with fewer than ``min_rows`` rows count neither as worst group nor in the difference.
    ``positives`` are the rows of the second of two classes, by group.
    """

    rows: Count
    confidence: Confidence = CONFIDENCE
    min_rows: Count
    metrics: dict[str, Metric]
    parity: dict[str, Parity] = {}
    positives: tuple[Count, ...] = ()

    def small_groups(self, groups: Sequence[str]) -> dict[str, int]:
        """Return the groups with too few rows to be compared, and their test rows."""
        first = next(iter(self.metrics.values()))
        return {
            name: group.rows
            for name, group in zip(groups, first.by_group, strict=True)
            if not group.has_enough_rows
        }


class MethodOfRun(BaseModel, frozen=True):
    """The method that trained, with its options."""

    key: str
    name: str
    options: dict[str, object]
    rounds: Count
    participation: float = 1.0


class ModelOfRun(BaseModel, frozen=True):
    """The model that was trained; a mixture has several members.

    The effects of ``monotone`` columns go only "up", or "down".
    """

    kind: str
    hidden: tuple[int, ...]
    members: Count
    monotone: Mapping[str, str] = {}


class BaselineOfChange(BaseModel, frozen=True):
    """Which baseline a change is from; after more rounds it is another one."""

    key: str
    name: str
    rounds: Count
    converged: bool | None


class ChangeOfMetric(BaseModel, frozen=True):
    """The method's value minus the baseline's on the same rows; ``worst`` compares worst groups."""

    overall: Interval
    by_group: tuple[Interval, ...]
    worst: Interval


class ChangeOfRun(BaseModel, frozen=True):
    """The method's change from the baseline, measured row by row.

    The intervals of all ``comparisons`` (groups with enough rows, and all rows, times metrics) hold
    at once with this confidence. A group's rows are those that a metric is about: misses, those of
    the positive class.
    """

    baseline: BaselineOfChange
    confidence: Confidence = CONFIDENCE
    comparisons: Count = 1
    min_rows: Count
    metrics: dict[str, ChangeOfMetric]

    @property
    def risk(self) -> ChangeOfMetric:
        """The change in the metric that training minimises."""
        return self.metrics[RISK]


def _not_negative(proof: Certificate) -> Certificate:
    # An excess may be below 0.
    least = 0 if proof.highest_own is None else -MAX_NUMBER
    values = vars(proof).values()
    if any(isinstance(value, float) and not least <= value <= MAX_NUMBER for value in values):
        raise ValueError("has a number that is negative or too large")
    return proof


# What is certified of the worst training risk, penalty included.
Proof = Annotated[Certificate, AfterValidator(_not_negative)]


class RiskAfterRound(BaseModel, frozen=True):
    """The validation risk that judges the model after a round, and whose it is.

    That is the worst group, all rows or the worst site; None is all small groups together.
    """

    round: Count
    risk: Number
    standard_error: Number
    group: str | None


class ValidationOfRun(BaseModel, frozen=True):
    """Validation rows by group, the round that they chose, and the last round."""

    rows: tuple[Count, ...]
    chosen: RiskAfterRound | None = None
    last: RiskAfterRound | None = None
    patience: Count | None = None

    def exhausts(self, patience: int | None) -> bool:
        """Whether the last ``patience`` rounds or more were no better than the chosen one."""
        if patience is None or self.chosen is None or self.last is None:
            return False
        return self.last.round - self.chosen.round >= patience


class SiteOfRun(BaseModel, frozen=True):
    """How often a site took part in a network run, and why it did not otherwise."""

    site: str
    rounds: Count
    refused: dict[str, Count]


class ReachOfRun(BaseModel, frozen=True):
    """The final group weights, and their distance to the hull of the sites' mixes."""

    weights: tuple[float, ...]
    distance: Annotated[float, Field(ge=0, le=2)]


class PrivacyOfRun(BaseModel, frozen=True):
    """What the run promises of one unit, how, and what all runs on the same data have spent.

    ``minimum_group`` is how many rows a group needed: in smaller ones noise would dominate.
    """

    epsilon: Annotated[float, Field(gt=0, le=MAX_NUMBER)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    unit: Literal["row", "site"]
    clip: Annotated[float, Field(gt=0, le=MAX_NUMBER)]
    max_loss: Annotated[float, Field(gt=0, le=MAX_NUMBER)]
    colluding: Count
    releases: Count
    noise_multiplier: Annotated[float, Field(gt=0, le=MAX_NUMBER)]
    minimum_group: Count
    spent: NotNegative | None = None


class CostOfRun(BaseModel, frozen=True):
    """Bytes per site and round, as computed before training; over a network also as measured.

    ``usual_rounds`` is the estimated range of rounds that such a run needs, ``class_rounds`` are
    those before the first one, in which an additive model's smoothing and pairs were chosen. Totals
    are over all rounds, these included.
    """

    bytes_down: Count
    bytes_up: Count
    usual_rounds: tuple[Count, Count] | None = None
    counted_down: Count | None = None
    counted_up: Count | None = None
    class_rounds: Count | None = None
    total_down: Count | None = None
    total_up: Count | None = None


class MergedOfRun(BaseModel, frozen=True):
    """The groups that were merged into one, and the model's scores on each of them."""

    groups: Annotated[tuple[str, ...], Field(min_length=1)]
    test: Measured


class BoundaryOfRun(BaseModel, frozen=True):
    """Penalised training risks, and lines (k, L): no model has k mean + (1 - k) worst < L."""

    mean: NotNegative
    worst: float
    lines: tuple[tuple[float, float], ...] = ()


class Change(BaseModel, frozen=True):
    """A value of a group, or of all rows, before and after; ``value`` is after minus before.

    ``kind`` is what was measured, such as "missed"; ``rows`` are those that it is about.
    """

    group: str
    kind: str
    rows: Count
    before: float
    after: float
    value: float
    low: float
    high: float
    small: bool = False

    @property
    def has_enough_rows(self) -> bool:
        """Whether there are enough test and training rows to compare."""
        return self.rows >= MIN_ROWS and not self.small

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0, with enough rows."""
        return self.has_enough_rows and (self.low > 0 or self.high < 0)


class VerdictOfRun(BaseModel, frozen=True):
    """What became of the worst-off group and of everybody else; see ``findings.verdict``.

    ``worst_group`` is the change of the group that was worst off with the baseline, if one can be
    named; ``harms`` are all clear changes for the worse, the largest first. Rates are about the
    class ``positive``.
    """

    verdict: Literal[
        "helped",
        "helped, at a price",
        "no clear change",
        "no benefit: keep the standard model",
        "not finished",
    ]
    reason: str
    positive: str | None = None
    worst_group: Change | None = None
    harms: tuple[Change, ...] = ()


class Results(BaseModel, frozen=True):
    """results.json; ``finished`` is a date. ``convergence`` is None if noise hides it.

    ``small_groups`` had too few training rows to be trained for; ``merged`` are those merged into
    one group. ``gap_left`` is the share of the worst training risk that was left to gain, if the
    method knows it; ``proof`` proves it. A baseline has no ``verdict``. Where sums were masked,
    ``secure_aggregation`` is over how many sites totals were, at least. ``departures`` of groups
    are known of an additive model whose records were in one process. ``site_parity`` is that of
    each site's test records, where their sums are known by site.
    ``own_risks`` are what groups' own models reach, if the method looked for them.
    """

    format: Literal[1]
    method: MethodOfRun
    task: Literal["classification", "regression"]
    target: str
    model: ModelOfRun
    loss: str
    iterate: str
    classes: tuple[str, ...]
    groups: Annotated[tuple[str, ...], Field(min_length=1)]
    small_groups: tuple[str, ...] = ()
    seed: int
    seconds: NotNegative
    finished: str
    gradient_evaluations: Count
    convergence: Convergence | None
    gap_left: NotNegative | None = None
    proof: Proof | None = None
    validation: ValidationOfRun | None = None
    test: Measured
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    personal: Measured | None = None
    merged: MergedOfRun | None = None
    sites: tuple[SiteOfRun, ...] | None = None
    secure_aggregation: Count | None = None
    change: ChangeOfRun | None = None
    verdict: VerdictOfRun | None = None
    reach: ReachOfRun | None = None
    cost: CostOfRun | None = None
    privacy: PrivacyOfRun | None = None
    departures: tuple[Departure, ...] | None = None
    site_parity: dict[str, dict[str, Parity]] | None = None
    boundary: BoundaryOfRun | None = None
    own_risks: OwnRisks | None = None

    @model_validator(mode="after")
    def _check_groups(self) -> "Results":
        """Refuse metrics without a risk, or without a value for each group."""
        groups, merged = len(self.groups), self.merged
        parts: tuple[tuple[str, int, Measured | ChangeOfRun | None], ...] = (
            ("test", groups, self.test),
            ("personal", groups, self.personal),
            ("change", groups, self.change),
            ("merged", len(merged.groups) if merged else 0, merged.test if merged else None),
        )
        for part, count, measured in parts:
            metrics = measured.metrics if measured else {}
            if metrics and RISK not in metrics:
                raise ValueError(f"{part} has no {RISK}")
            for name, metric in metrics.items():
                if len(metric.by_group) != count:
                    raise ValueError(
                        f"{part}: {name} has {len(metric.by_group)} values for {count} groups"
                    )
        return self

    @property
    def risk(self) -> Metric:
        """The metric that training minimises."""
        return self.test.metrics[RISK]

    @property
    def is_audit(self) -> bool:
        """Whether the model was trained elsewhere: there are no rounds and no training records."""
        return self.method.key == AUDIT

    @property
    def converged(self) -> bool | None:
        """Whether training converged; None if sums with noise do not tell."""
        return None if self.convergence is None else self.convergence.converged


def record_as_json(record: BaseModel) -> dict[str, object]:
    """Return a record as plain values for its file, without unset fields."""
    return record.model_dump(mode="json", exclude_unset=True)
