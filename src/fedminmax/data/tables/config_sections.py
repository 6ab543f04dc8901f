"""The sections of `fedminmax.toml`, checked key by key by pydantic.

Errors of pydantic and of the TOML reader are turned into one line about the user's file.
"""

import tomllib
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from fedminmax.core.small_groups import MINIMUM_GROUP
from fedminmax.core.validation import MAX_SHARE
from fedminmax.data.tables.file_format import AUTO
from fedminmax.data.tables.schema import DEFAULT_MISSING_VALUES
from fedminmax.data.tables.wording import did_you_mean, toml_key
from fedminmax.methods.defaults import DEFAULT_METHOD

NO_BASELINE = "none"
LINEAR_OF_TASK = {"classification": "logistic", "regression": "linear"}
SPLINE, NETWORK = "spline", "mlp"
MODEL_KINDS = (*LINEAR_OF_TASK.values(), SPLINE, NETWORK)
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
ValueMap = Annotated[dict[str, Name], Field(min_length=1)]
GroupRule = Literal["error", "own_group", "leave_out"]
DESCRIPTIONS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "list_type": "a list in brackets",
    "dict_type": "a section of its own",
    "model_type": "a section of its own",
    "too_short": "at least one entry",
}


class FormatSection(BaseModel):
    """[data.formats.SITE]: the differences in one site's file."""

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
    sites: dict[str, Name] = {}
    file: Name | None = None
    site_column: Name | None = None
    person_column: Name | None = None
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
    map: dict[str, ValueMap] = {}
    own_values: list[Name] = []
    missing_values: list[str] = list(DEFAULT_MISSING_VALUES)


class FeatureSection(BaseModel):
    """[features.NAME]: how one column is read."""

    model_config = STRICT
    kind: Literal["numeric", "category", "boolean", "date"]
    categories: list[Name] = []
    format: Name | None = None
    missing_values: list[str] = []
    unit: Name | None = None


class GroupsSection(BaseModel):
    """[groups]: which columns define the groups."""

    model_config = STRICT
    columns: Annotated[list[Name], Field(min_length=1)]
    bands: dict[str, Annotated[list[float], Field(min_length=1)]] = {}
    values: dict[str, Annotated[list[Name], Field(min_length=1)]] = {}
    missing: GroupRule = "error"
    map: dict[str, ValueMap] = {}
    unlisted: GroupRule = "error"
    as_features: bool = False
    minimum_size: Annotated[int, Field(ge=0)] = MINIMUM_GROUP
    small: Literal["share", "merge", "play"] = "share"


class ModelSection(BaseModel):
    """[model]: what is trained, its loss, and the penalty ridge/2 |theta|^2 of a linear one.

    The default loss and ridge depend on the method: see ``methods.defaults``.
    """

    model_config = STRICT
    kind: Literal["logistic", "linear", "spline", "mlp"]
    hidden: list[Size] = []
    loss: Literal["brier", "cross_entropy", "squared_error"] | None = None
    ridge: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class MethodSection(BaseModel):
    """[method]: name, length, and any option that `fedminmax methods` lists for it.

    ``rounds`` is the maximum number of rounds, ``baseline`` the method to compare with; their
    defaults depend on the method (see ``methods.defaults``). ``iterate`` selects which of a run's
    models it returns, ``patience`` is the number of rounds without improvement on validation rows
    after which it stops, ``certify`` whether to prove after the run how much better any model could
    be.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: Name = DEFAULT_METHOD
    rounds: Size | None = None
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    baseline: Name | None = None
    iterate: Literal["average", "last", "tail_average", "best"] | None = None
    patience: Size | None = None
    certify: bool = False


class PrivacySection(BaseModel):
    """[privacy]: what nobody may learn of one row, or of one site (see ``core.privacy``).

    ``clip`` and ``max_loss`` that are left open follow from the model and the loss. ``limit`` is
    the most epsilon that all runs on the same files may spend together.
    """

    model_config = STRICT
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    unit: Literal["row", "site"] = "row"
    colluding: Annotated[int, Field(ge=0)] = 0
    max_loss: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class LoggingSection(BaseModel):
    """[logging]: additional logs of rounds; mlflow is a tracking address."""

    model_config = STRICT
    tensorboard: bool = False
    mlflow: Name | None = None


class FederationSection(BaseModel):
    """[federation]: what holds between real sites.

    With ``secure_aggregation`` sites mask what they send, so that the server learns totals alone;
    without a word about it, the federation's kits say whether they do. With ``same_sites`` all
    masked totals of a run are over the same sites, and a round waits for a site that is away;
    without it a run goes on, and the difference of two totals tells about the site that is missing
    in one.
    """

    model_config = STRICT
    secure_aggregation: bool | None = None
    same_sites: bool = True


class ReportSection(BaseModel):
    """[report]: the user's description of the model, for the report and the model card."""

    model_config = STRICT
    title: Name | None = None
    intended_use: Name | None = None
    not_for: Name | None = None


EMPTY_REPORT = ReportSection()


class ConfigSections(BaseModel):
    """The whole file."""

    model_config = STRICT
    data: DataSection
    features: dict[str, FeatureSection]
    groups: GroupsSection
    model: ModelSection
    method: MethodSection = MethodSection()
    logging: LoggingSection = LoggingSection()
    federation: FederationSection = FederationSection()
    report: ReportSection = EMPTY_REPORT
    privacy: PrivacySection | None = None


def toml_error_message(error: tomllib.TOMLDecodeError) -> str:
    """Describe a syntax error of the file; a duplicate key is the usual case."""
    reason = str(error)
    if reason.startswith("Cannot overwrite a value") or "twice" in reason:
        where = reason[reason.rfind("(") :]
        return f"the same key is given twice {where}; give each site and column its own name"
    return f"is not valid TOML: {reason}; correct that line"


def validation_error_message(error: ValidationError, file: type[BaseModel]) -> str:
    """Describe the first invalid key: its value and what was expected.

    ``file`` is the model of the whole file.
    """
    details = error.errors()[0]
    *section, key = details["loc"]
    if isinstance(key, int):
        *section, key = section
        return _wrong_value(section, f"an entry of {key}", details)
    if details["type"] == "extra_forbidden":
        return _unknown_key(section, str(key), file)
    if details["type"] == "missing":
        return f"{_named(section)}{_key(section, str(key), file)} is missing; add it"
    return _wrong_value(section, _key(section, str(key), file), details)


def _wrong_value(section: list[int | str], key: str, details: ErrorDetails) -> str:
    expected = DESCRIPTIONS.get(details["type"]) or _describe(details["msg"])
    return f"{_named(section)}{key} is {_shown(details['input'])}; give {expected}"


def _unknown_key(section: list[int | str], key: str, file: type[BaseModel]) -> str:
    model = _section_model(file, str(section[0])) if section else file
    hint = did_you_mean(key, list(model.model_fields))
    return f"{_named(section)}'{key}' is unknown; {hint}"


def _section_model(file: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the model of a section, or of each section in it, such as [features.NAME]."""
    kind: Any = file.model_fields[name].annotation
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
    model: type[BaseModel] = get_args(kind)[-1] if get_origin(kind) is dict else kind
    return model


def _describe(message: str) -> str:
    text = message.removeprefix("Input should be ")
    return f"a number {text}" if text.startswith(("greater", "less")) else text


def _named(section: list[int | str]) -> str:
    return f"[{'.'.join(toml_key(str(part)) for part in section)}] " if section else ""


def _key(section: list[int | str], key: str, file: type[BaseModel]) -> str:
    if section or get_origin(file.model_fields[key].annotation) is list:
        return toml_key(key)
    return f"section [{key}]"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
