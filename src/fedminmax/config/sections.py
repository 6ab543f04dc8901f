"""The sections of `fedminmax.toml` as frozen records.

A section has the keys of the file, with the values that they are read as. `resolved` fills in what
a file leaves open, so that each value of a record is the one that a run uses.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from fedminmax.config.file_format import AUTO, FileFormat, FormatChanges
from fedminmax.config.messages import STRICT
from fedminmax.config.schema import DEFAULT_MISSING_VALUES, Kind, MissingGroup
from fedminmax.core.additive.model import ADDITIVE
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.noise import Unit
from fedminmax.core.privacy.mechanism import NETWORK_CLIP, default_clip
from fedminmax.core.small_groups import MINIMUM_GROUP, SmallGroupRule
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS, MAX_SHARE
from fedminmax.methods.card import (
    ADDITIVE_RIDGE,
    DEFAULT_METHOD,
    DEFAULT_ROUNDS,
    PRIVATE_ROUNDS,
    default_baseline,
    default_loss,
    default_ridge,
    default_trade,
)
from fedminmax.methods.catalogue import CARDS

NO_BASELINE = "none"
LINEAR_OF_TASK = {"classification": "logistic", "regression": "linear"}
NETWORK = "mlp"
MODEL_KINDS = (*LINEAR_OF_TASK.values(), ADDITIVE, NETWORK)
DEFAULT_PAIRS = 10
EFFECTS, COLUMNS = "effects", "columns"
DEFAULT_HELD_OUT = 0.2
# The option of methods that find the models between the plain and the minimax model, too.
FRONTIER = "frontier"
Name = Annotated[str, Field(min_length=1)]
Names = tuple[Name, ...]
Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Direction = Literal["up", "down"]
LossName = Literal["brier", "cross_entropy", "squared_error"]
ValueMap = Annotated[Mapping[str, Name], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """[data]: which files, what to predict, what to hold out for testing and for validation.

    Of two classes, ``positive`` is the one that rates are about: the last if it is not set.
    ``formats`` has what is different in some sites' files. ``weight_column`` has weights of a
    survey, which are not used: a run says so.
    """

    target: Name
    task: Literal["classification", "regression"] = "classification"
    classes: Names = ()
    positive: Name | None = None
    sites: Mapping[str, Name] = field(default_factory=dict)
    file: Name | None = None
    site_column: Name | None = None
    person_column: Name | None = None
    weight_column: Name | None = None
    test: Mapping[str, Name] = field(default_factory=dict)
    held_out: Share
    validation: Annotated[float, Field(ge=0, le=MAX_SHARE)]
    seed: Annotated[int, Field(ge=0)] = 0
    delimiter: Name = AUTO
    encoding: Name = AUTO
    decimal: Name = "."
    thousands: str = ""
    date_format: Name | None = None
    formats: Mapping[str, FormatChanges] = field(default_factory=dict)
    merge_spellings: bool = False
    map: Mapping[str, ValueMap] = field(default_factory=dict)
    own_values: Names = ()
    missing_values: tuple[str, ...] = DEFAULT_MISSING_VALUES

    @property
    def format(self) -> FileFormat:
        """The common format of all files, apart from changes by site."""
        return FileFormat(
            self.delimiter,
            self.encoding,
            decimal=self.decimal,
            thousands=self.thousands,
            date_format=self.date_format,
        )


@dataclass(frozen=True)
class FeatureSection:
    """[features.NAME]: how one column is read."""

    kind: Kind
    categories: Names = ()
    format: Name | None = None
    missing_values: tuple[str, ...] = ()
    unit: Name | None = None


@dataclass(frozen=True)
class GroupsSection:
    """[groups]: which columns define the groups."""

    columns: Annotated[Names, Field(min_length=1)]
    bands: Mapping[str, Annotated[tuple[float, ...], Field(min_length=1)]] = field(
        default_factory=dict
    )
    values: Mapping[str, Annotated[Names, Field(min_length=1)]] = field(default_factory=dict)
    missing: MissingGroup = MissingGroup.ERROR
    map: Mapping[str, ValueMap] = field(default_factory=dict)
    unlisted: MissingGroup = MissingGroup.ERROR
    as_features: bool = False
    minimum_size: Annotated[int, Field(ge=0)] = MINIMUM_GROUP
    small: SmallGroupRule = SmallGroupRule.BY_SIZE


@dataclass(frozen=True)
class ModelSection:
    """[model]: what is trained, its loss, and the penalty ridge/2 |theta|^2 of a linear one.

    An additive model has at most so many ``pairs`` of columns that act together; ``smoothness`` is
    a factor on the smoothing that the data choose, and the effects of ``monotone`` columns on the
    score may only go up, or down. A network's ``inputs`` are effects in an additive model, or the
    columns themselves.
    """

    kind: Literal["logistic", "linear", "additive", "mlp"]
    hidden: tuple[Size, ...] = ()
    loss: LossName = "brier"
    ridge: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    pairs: Annotated[int, Field(ge=0, le=100)] = 0
    smoothness: Positive = 1.0
    monotone: Mapping[str, Direction] = field(default_factory=dict)
    inputs: Literal["effects", "columns"] = "columns"

    @property
    def is_additive(self) -> bool:
        """Whether it is a sum of effects of columns, each of any shape."""
        return self.kind == ADDITIVE

    @property
    def has_codes(self) -> bool:
        """Whether columns become codes, for an additive model or for inputs that are effects."""
        return self.is_additive or self.inputs == EFFECTS

    @property
    def class_ridge(self) -> float:
        """The ridge of the additive model whose effects are found."""
        return self.ridge or ADDITIVE_RIDGE


@dataclass(frozen=True)
class MethodSection:
    """[method]: name, its options as text for its card, and the length of the run.

    ``rounds`` is the maximum number of rounds, ``baseline`` the method to compare with, if there is
    one. ``iterate`` (which of a run's models it returns) and ``patience`` (the number of rounds
    without improvement on validation rows after which it stops) are as given; ``TableConfig`` has
    the defaults. With ``certify``, the run ends with a proof of how much lower the worst risk of
    any model can be.
    """

    name: Name
    options: Mapping[str, str]
    rounds: Size
    _: KW_ONLY
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    baseline: Name | None = None
    iterate: Iterate | None = None
    patience: Size | None = None
    certify: bool = False

    @property
    def finds_frontier(self) -> bool:
        """Whether the run finds the models between the plain and the minimax model, too."""
        return self.options.get(FRONTIER) == "true"


@dataclass(frozen=True)
class PrivacySection:
    """[privacy]: what nobody may learn of one row, or of one site (see ``core.privacy``).

    ``limit`` is the most epsilon that all runs on the same files may spend together.
    """

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    _: KW_ONLY
    clip: Positive
    unit: Unit = Unit.ROW
    colluding: Annotated[int, Field(ge=0)] = 0
    max_loss: Positive | None = None
    limit: Positive | None = None


@dataclass(frozen=True)
class LoggingSection:
    """[logging]: additional logs of rounds; ``mlflow_uri`` is a tracking address."""

    tensorboard: bool = False
    mlflow_uri: Name | None = None


NO_LOGGING = LoggingSection()


@dataclass(frozen=True)
class FederationSection:
    """[federation]: what holds between real sites.

    With ``secure_aggregation`` sites mask what they send, so that the server learns totals alone;
    if it is not set, the federation's kits say whether they do. With ``same_sites`` all masked
    totals of a run are over the same sites, and a round waits for a site that is away; without it
    a run goes on, and the difference of two totals tells about the site that is missing in one.
    """

    secure_aggregation: bool | None = None
    same_sites: bool = True


@dataclass(frozen=True)
class ReportSection:
    """[report]: the user's description of the model, for the report and the model card."""

    title: Name | None = None
    intended_use: Name | None = None
    not_for: Name | None = None


EMPTY_REPORT = ReportSection()


@dataclass(frozen=True, kw_only=True)
class AuditSection:
    """[audit]: columns with the predictions of a model, and of one that it is compared with.

    The probability of the positive class or the predicted number, or a probability for each class.
    Sites then measure these instead of training a model.
    """

    predictions: Annotated[Names, Field(min_length=1)]
    against: Names = ()


@dataclass(frozen=True, kw_only=True)
class ConfigSections:
    """The whole file."""

    __pydantic_config__ = STRICT

    data: DataSection
    features: Mapping[str, FeatureSection]
    groups: GroupsSection
    model: ModelSection
    method: MethodSection
    logging: LoggingSection = NO_LOGGING
    federation: FederationSection = field(default_factory=FederationSection)
    report: ReportSection = EMPTY_REPORT
    privacy: PrivacySection | None = None
    audit: AuditSection | None = None


METHOD_KEYS = {entry.name for entry in fields(MethodSection)} - {"options"}


def resolved(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with what it leaves open filled in.

    A value of a wrong type, such as a number where a section is expected, stays as it is: to report
    it is a matter of validation.
    """
    data, model, method = (_section(file, name) for name in ("data", "model", "method"))
    private, kind = "privacy" in file, model.get("kind")
    if kind is None:
        task = "regression" if data.get("task") == "regression" else "classification"
        kind = LINEAR_OF_TASK[task] if private else ADDITIVE
    name = method.get("name")
    card = CARDS[name if isinstance(name, str) and name in CARDS else DEFAULT_METHOD]
    linear, classifies = kind != NETWORK, data.get("task") != "regression"
    inputs = model.get("inputs", COLUMNS if linear or private else EFFECTS)
    usual_loss = default_loss(card.pace, classifies=classifies)
    loss = next((key for key in LOSSES_BY_NAME if key == model.get("loss")), usual_loss)
    clip = default_clip(LOSSES_BY_NAME[loss], len(_section(file, "features")))
    usual_baseline = NO_BASELINE if private else default_baseline(card.pace)
    baseline = method.get("baseline", usual_baseline)
    options = {key: _text(value) for key, value in method.items() if key not in METHOD_KEYS}
    if private and "curvature" in card.option_types:
        # Curvature sums cannot keep a privacy guarantee.
        options = {"curvature": "false"} | options
    trade = default_trade(options, card.pace, linear=linear, private=private)
    options = {key: _text(own) for key, own in trade.items() if key in card.option_types} | options
    if not linear and not private and "linear_start" in card.option_types:
        options = {"linear_start": "true"} | options
    stated = {"method": {}, "model": {}} | dict(file)
    if model.get("smoothness") == AUTO:
        stated["model"] = model | {"smoothness": 1.0}
    if isinstance(stated["method"], dict):
        stated["method"] = {
            "name": DEFAULT_METHOD,
            "rounds": (PRIVATE_ROUNDS if private else DEFAULT_ROUNDS)[card.pace],
            **{key: value for key, value in method.items() if key in METHOD_KEYS},
            "baseline": None if baseline == NO_BASELINE else baseline,
            "options": options,
        }
    defaults: dict[str, dict[str, Any]] = {
        "data": {
            "held_out": 0.0 if data.get("test") else DEFAULT_HELD_OUT,
            "validation": 0.0 if linear or private else DEFAULT_SHARE_FOR_NETWORKS,
        },
        "model": {
            "kind": kind,
            "loss": usual_loss,
            "ridge": default_ridge(card.pace, loss, linear=linear, additive=kind == ADDITIVE),
            **({} if linear else {"inputs": inputs}),
            **({"pairs": DEFAULT_PAIRS} if kind == ADDITIVE or inputs == EFFECTS else {}),
        },
        "privacy": {"clip": NETWORK_CLIP if model.get("hidden") else clip},
    }
    return {
        name: defaults.get(name, {}) | section if isinstance(section, dict) else section
        for name, section in stated.items()
    }


def _section(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = file.get(name)
    return section if isinstance(section, dict) else {}


def _text(value: object) -> str:
    """Return the value of a method's option as its card expects it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
