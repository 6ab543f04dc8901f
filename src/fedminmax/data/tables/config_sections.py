"""The sections of `fedminmax.toml`, as pydantic checks them key by key."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedminmax.core.small_groups import MINIMUM_GROUP
from fedminmax.core.validation import MAX_SHARE
from fedminmax.data.tables.file_format import AUTO
from fedminmax.data.tables.schema import DEFAULT_MISSING_VALUES
from fedminmax.methods.defaults import DEFAULT_METHOD

NO_BASELINE = "none"
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]


class FormatSection(BaseModel):
    """[data.formats.HOLDER]: what is different in one holder's file."""

    model_config = STRICT
    delimiter: Name | None = None
    encoding: Name | None = None
    decimal: Name | None = None
    thousands: str | None = None
    date_format: Name | None = None


class DataSection(BaseModel):
    """[data]: which files, what to predict, what to hold out for testing and for validation."""

    model_config = STRICT
    target: Name
    task: Literal["classification", "regression"] = "classification"
    classes: list[Name] = []
    holders: dict[str, Name] = {}
    file: Name | None = None
    holder_column: Name | None = None
    test: dict[str, Name] = {}
    held_out: Share | None = None
    validation: Annotated[float, Field(ge=0, le=MAX_SHARE)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    delimiter: Name = AUTO
    encoding: Name = AUTO
    decimal: Name = "."
    thousands: str = ""
    date_format: Name | None = None
    formats: dict[str, FormatSection] = {}
    merge_spellings: bool = False
    missing_values: list[str] = list(DEFAULT_MISSING_VALUES)


class FeatureSection(BaseModel):
    """[features.NAME]: how one column is read."""

    model_config = STRICT
    kind: Literal["numeric", "category", "boolean", "date"]
    categories: list[Name] = []
    format: Name | None = None


class GroupsSection(BaseModel):
    """[groups]: which columns make the groups."""

    model_config = STRICT
    columns: Annotated[list[Name], Field(min_length=1)]
    bands: dict[str, Annotated[list[float], Field(min_length=1)]] = {}
    values: dict[str, Annotated[list[Name], Field(min_length=1)]] = {}
    missing: Literal["error", "own-group", "leave-out"] = "error"
    unlisted: Literal["error", "own-group", "leave-out"] = "error"
    as_features: bool = False
    minimum_size: Annotated[int, Field(ge=0)] = MINIMUM_GROUP
    small: Literal["share", "merge", "play"] = "share"


class ModelSection(BaseModel):
    """[model]: what is trained, its loss, and the penalty ridge/2 |theta|^2 of a linear one.

    A loss or ridge that is left open depends on the method: see ``methods.defaults``.
    """

    model_config = STRICT
    kind: Literal["logistic", "linear", "mlp"]
    hidden: list[Size] = []
    loss: Literal["brier", "cross-entropy", "squared-error"] | None = None
    ridge: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class MethodSection(BaseModel):
    """[method]: name, length, and any option that `fedminmax methods` lists for it.

    ``rounds`` are the most that a run takes, ``baseline`` is the method to compare with; what they
    are if they are left open depends on the method (see ``methods.defaults``). ``iterate`` is which
    of a run's models is its answer, ``patience`` the rounds after which a run stops that gets no
    better on validation rows, ``certify`` whether to prove after the run how much better any model
    could be.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: Name = DEFAULT_METHOD
    rounds: Size | None = None
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    baseline: Name | None = None
    iterate: Literal["average", "last", "tail-average", "best"] | None = None
    patience: Size | None = None
    certify: bool = False


class LoggingSection(BaseModel):
    """[logging]: where else rounds are written; mlflow is a tracking address."""

    model_config = STRICT
    tensorboard: bool = False
    mlflow: Name | None = None


class ReportSection(BaseModel):
    """[report]: what the model is for, in the user's words, for the report and the model card."""

    model_config = STRICT
    title: Name | None = None
    intended_use: Name | None = None
    not_for: Name | None = None


NOTHING_STATED = ReportSection()


class ConfigSections(BaseModel):
    """The whole file."""

    model_config = STRICT
    data: DataSection
    features: dict[str, FeatureSection]
    groups: GroupsSection
    model: ModelSection
    method: MethodSection = MethodSection()
    logging: LoggingSection = LoggingSection()
    report: ReportSection = NOTHING_STATED
