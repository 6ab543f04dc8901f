"""The configuration of a run on tables: read from `fedminmax.toml`, checked, as frozen records."""

import tomllib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from fedminmax.core.certificate import check_provable
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.privacy.mechanism import NETWORK_CLIP, Privacy, Unit, default_clip
from fedminmax.core.validation import checked_share
from fedminmax.data.tables.config_checks import (
    changes_of,
    check_covered,
    check_sections,
    format_of,
    method_options,
    validation_share,
)
from fedminmax.data.tables.config_schema import schema_of
from fedminmax.data.tables.config_sections import (
    EMPTY_REPORT,
    NETWORK,
    NO_BASELINE,
    SPLINE,
    ConfigSections,
    ReportSection,
    toml_error_message,
    validation_error_message,
)
from fedminmax.data.tables.file_format import FileFormat
from fedminmax.data.tables.schema import Schema
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.defaults import (
    DEFAULT_ROUNDS,
    PRIVATE_ROUNDS,
    default_baseline,
    default_loss,
    default_patience,
    default_ridge,
)

DEFAULT_HELD_OUT = 0.2


@dataclass(frozen=True)
class Source:
    """A file and the owner of its rows; without an owner, the site column names it row by row.

    Without its own ``format``, the file has the format of the configuration.
    """

    path: Path
    owner: str | None
    format: FileFormat | None = None


@dataclass(frozen=True)
class ModelChoice:
    """What is trained: logistic, linear, spline or mlp with its hidden widths, and the loss's name.

    ``ridge`` is m of the penalty m/2 |theta|^2 of all but an mlp.
    """

    kind: str
    hidden: tuple[int, ...]
    loss: str
    ridge: float = 0.0

    @property
    def is_spline(self) -> bool:
        """Whether it is a linear model of spline features."""
        return self.kind == SPLINE


@dataclass(frozen=True)
class MethodChoice:
    """A method's key, its options as text for its card, and the length of the run.

    ``baseline`` is the key of the method to compare with, if there is one. ``iterate`` (which of a
    run's models it returns) and ``patience`` are as given; ``TableConfig`` has the defaults. With
    ``certify``, the run ends with a proof of how much lower the worst risk of any model can be.
    """

    name: str
    options: Mapping[str, str]
    rounds: int
    _: KW_ONLY
    participation: float
    baseline: str | None = None
    iterate: Iterate | None = None
    patience: int | None = None
    certify: bool = False


@dataclass(frozen=True)
class LoggingChoice:
    """Additional logs of rounds: TensorBoard's event files, an MLflow tracking address."""

    tensorboard: bool = False
    mlflow: str | None = None


@dataclass(frozen=True)
class PrivacyChoice:
    """A promise without its rounds, and the most that all runs on these files may spend."""

    epsilon: float
    delta: float
    _: KW_ONLY
    clip: float
    unit: Unit = Unit.ROW
    colluding: int = 0
    max_loss: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class TableConfig:
    """The complete configuration of a run on tables; ``text`` is the file's content.

    With ``secure_aggregation`` a server between real sites learns totals alone; None is not decided
    yet. With ``same_sites`` all of these totals are over the same sites.
    """

    training: tuple[Source, ...]
    test: tuple[Source, ...]
    _: KW_ONLY
    site_column: str | None
    held_out: float
    seed: int
    format: FileFormat
    schema: Schema
    model: ModelChoice
    method: MethodChoice
    logging: LoggingChoice = LoggingChoice()
    report: ReportSection = EMPTY_REPORT
    validation: float = 0.0
    secure_aggregation: bool | None = None
    same_sites: bool = True
    privacy: PrivacyChoice | None = None
    text: str = field(default="", repr=False, compare=False)

    @property
    def for_measuring(self) -> "TableConfig":
        """The same for files that are measured as a whole: nobody has to know whose rows are."""
        return replace(self, schema=replace(self.schema, person_column=None))

    @property
    def iterate(self) -> Iterate:
        """Which of a run's models it returns: by default, the one chosen by validation rows.

        Without validation rows it is the method's own default. The baseline uses the same iterate.
        """
        if self.method.iterate is not None:
            return self.method.iterate
        return Iterate.BEST if self.validation else CARDS[self.method.name].build({}).output

    @property
    def promise(self) -> Privacy | None:
        """What the run promises, over all of its rounds; None if nothing."""
        own = self.privacy
        if own is None:
            return None
        return Privacy(
            own.epsilon,
            own.delta,
            clip=own.clip,
            rounds=self.method.rounds,
            unit=own.unit,
            colluding=own.colluding,
            max_loss=own.max_loss,
        )

    @property
    def patience(self) -> int | None:
        """Rounds without improvement on validation rows after which a run stops; None: never."""
        default = default_patience(CARDS[self.method.name].pace, self.validation)
        return self.method.patience or default


def read_config(path: str | Path) -> TableConfig:
    """Read and check a configuration; file names are relative to its folder."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write one with 'fedminmax init'")
    try:
        text = path.read_text(encoding="utf-8")
        sections = ConfigSections.model_validate(tomllib.loads(text))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {toml_error_message(error)}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {validation_error_message(error, ConfigSections)}") from error
    try:
        check_sections(sections)
        return replace(with_certificate(_record(sections, path.parent)), text=text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def adjusted(
    config: TableConfig,
    *,
    rounds: int | None = None,
    seed: int | None = None,
    validation: float | None = None,
    patience: int | None = None,
    gap: float | None = None,
    certify: bool = False,
    secure_aggregation: bool | None = None,
) -> TableConfig:
    """Override settings of the file with those given in a call."""
    config = with_gap(with_overrides(config, rounds, validation, patience), gap)
    config = with_certificate(config, certify=certify)
    if secure_aggregation is not None:
        config = replace(config, secure_aggregation=secure_aggregation)
    return config if seed is None else replace(config, seed=seed)


def with_certificate(config: TableConfig, *, certify: bool = False) -> TableConfig:
    """Add a proof if the command line asks for one; refuse it for models that have none."""
    certify = certify or config.method.certify
    if config.privacy is not None:
        check_covered(certify=certify, validation=config.validation)
    if not certify:
        return config
    model, schema = config.model, config.schema
    classes = max(len(schema.target.classes), 1)
    linear = LinearStructure(
        classes, len(schema.features), intercept=True, loss=model.loss, ridge=model.ridge
    )
    check_provable(None if model.hidden else linear)
    return replace(config, method=replace(config.method, certify=True))


def with_gap(config: TableConfig, gap: float | None) -> TableConfig:
    """Set when to stop from the command line; refuse it for a method without a known gap."""
    if gap is None:
        return config
    method = config.method
    if "gap" not in CARDS[method.name].option_types:
        raise InputError(
            f"--gap {gap:g}: {method.name} does not know how far it is from the optimum; set "
            'name = "fedminmax-fast" in [method]'
        )
    return replace(config, method=replace(method, options={**method.options, "gap": repr(gap)}))


def with_overrides(
    config: TableConfig, rounds: int | None, validation: float | None, patience: int | None
) -> TableConfig:
    """Override these settings of the file, if they are given."""
    method = config.method
    changed = replace(
        config,
        validation=config.validation if validation is None else checked_share(validation),
        method=replace(
            method,
            rounds=rounds or method.rounds,
            patience=method.patience if patience is None else patience,
        ),
    )
    if changed.validation == 0.0 and changed.method.patience is not None:
        raise InputError(
            f"patience = {changed.method.patience} needs validation rows to detect an improvement; "
            "set validation = 0.1 in [data]"
        )
    if changed.validation == 0.0 and changed.method.iterate is Iterate.BEST:
        raise InputError(
            '[method] iterate = "best" is chosen by validation rows; set validation = 0.1 in [data]'
        )
    return changed


def _record(sections: ConfigSections, folder: Path) -> TableConfig:
    data = sections.data
    agreed = format_of(data)
    formats = {name: changes_of(own).apply(agreed) for name, own in data.formats.items()}
    if data.file is not None:
        training: tuple[Source, ...] = (Source(folder / data.file, None),)
    else:
        training = tuple(
            Source(folder / file, name, formats.get(name)) for name, file in data.sites.items()
        )
    test = tuple(
        Source(folder / file, None if data.site_column else name, formats.get(name))
        for name, file in data.test.items()
    )
    default = 0.0 if test else DEFAULT_HELD_OUT
    method, private = sections.method, sections.privacy is not None
    pace = CARDS[method.name].pace
    baseline = method.baseline or (NO_BASELINE if private else default_baseline(pace))
    default_rounds = (PRIVATE_ROUNDS if private else DEFAULT_ROUNDS)[pace]
    model = _model(sections)
    return TableConfig(
        training=training,
        test=test,
        site_column=data.site_column,
        held_out=default if data.held_out is None else data.held_out,
        seed=data.seed,
        format=agreed,
        schema=schema_of(sections),
        model=model,
        method=MethodChoice(
            method.name,
            method_options(sections),
            method.rounds or default_rounds,
            participation=method.participation,
            baseline=None if baseline == NO_BASELINE else baseline,
            iterate=Iterate(method.iterate) if method.iterate else None,
            patience=method.patience,
            certify=method.certify,
        ),
        logging=LoggingChoice(sections.logging.tensorboard, sections.logging.mlflow),
        report=sections.report,
        validation=validation_share(sections),
        secure_aggregation=sections.federation.secure_aggregation,
        same_sites=sections.federation.same_sites,
        privacy=_privacy(sections, model),
    )


def _privacy(sections: ConfigSections, model: ModelChoice) -> PrivacyChoice | None:
    own = sections.privacy
    if own is None:
        return None
    loss, columns = LOSSES_BY_NAME[model.loss], len(sections.features)
    clip = own.clip or (NETWORK_CLIP if model.hidden else default_clip(loss, columns))
    return PrivacyChoice(
        own.epsilon,
        own.delta,
        clip=clip,
        unit=Unit(own.unit),
        colluding=own.colluding,
        max_loss=own.max_loss,
        limit=own.limit,
    )


def _model(sections: ConfigSections) -> ModelChoice:
    model, pace = sections.model, CARDS[sections.method.name].pace
    classifies, linear = sections.data.task == "classification", model.kind != NETWORK
    loss = model.loss or default_loss(pace, classifies=classifies, linear=linear)
    ridge = model.ridge
    if ridge is None:
        ridge = default_ridge(pace, loss, linear=linear, spline=model.kind == SPLINE)
    return ModelChoice(model.kind, tuple(model.hidden), loss, ridge)
