"""The files of a run folder, as pydantic checks them; unknown keys are left to newer versions."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fedminmax.report.table_metrics import RISK


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


# None where there is nothing to measure: a group without test rows, an unseen group.
Number = Annotated[float | None, AfterValidator(_finite)]
Count = Annotated[int, Field(ge=0)]
FROZEN = ConfigDict(frozen=True)


class Interval(BaseModel):
    """A value and its interval; of a group also the test rows behind it."""

    model_config = FROZEN
    value: Number
    low: Number
    high: Number
    rows: Count = 0


class Metric(BaseModel):
    """One metric over all test rows and by group, in the order of the groups' names."""

    model_config = FROZEN
    overall: Interval
    by_group: tuple[Interval, ...]
    worst_group: str | None
    gap: Interval


class Measured(BaseModel):
    """All metrics on the test rows; the confidence of their intervals where the file says it."""

    model_config = FROZEN
    rows: Count
    metrics: dict[str, Metric]
    confidence: float | None = None


class MethodOfRun(BaseModel):
    """The method that trained, with its options."""

    model_config = FROZEN
    key: str
    name: str
    options: dict[str, JsonValue]
    rounds: Count
    participation: float = 1.0


class BaselineOfChange(BaseModel):
    """Which baseline a change is from."""

    model_config = FROZEN
    key: str
    rounds: Count


class ChangeOfMetric(BaseModel):
    """The method's value minus the baseline's on the same rows, by group and over all rows."""

    model_config = FROZEN
    overall: Interval
    by_group: tuple[Interval, ...]


class ChangeOfRun(BaseModel):
    """What the method changed, measured row by row."""

    model_config = FROZEN
    baseline: BaselineOfChange
    metrics: dict[str, ChangeOfMetric]


class Results(BaseModel):
    """results.json."""

    model_config = FROZEN
    method: MethodOfRun
    task: Literal["classification", "regression"]
    target: str = ""
    model: dict[str, JsonValue] = {}
    loss: str
    iterate: str
    groups: Annotated[tuple[str, ...], Field(min_length=1)]
    seed: int
    seconds: float
    gradient_evaluations: int
    test: Measured
    change: ChangeOfRun | None = None
    personal: Measured | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def risk(self) -> Metric:
        """The metric that training is about."""
        return self.test.metrics[RISK]


class CensusFile(BaseModel):
    """census.json: rows by holder and group; others may have test files too."""

    model_config = FROZEN
    format: Literal[1]
    holders: tuple[str, ...]
    groups: tuple[str, ...]
    train: tuple[tuple[Count, ...], ...]
    test: tuple[tuple[Count, ...], ...]
    other_tests: dict[str, tuple[Count, ...]] = {}


def what_is_wrong(error: ValidationError) -> str:
    """Name the first key that does not fit, and why."""
    details = error.errors()[0]
    key = ".".join(str(part) for part in details["loc"])
    return " ".join(f"{key} {details['msg']}".split())
