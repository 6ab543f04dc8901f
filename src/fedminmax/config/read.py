"""The configuration of a run on tables: read from `fedminmax.toml`, checked, as a frozen record.

``Overrides`` are the settings of one call that replace those of the configuration.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from fedminmax.config.checks import check_covered, check_sections
from fedminmax.config.file_format import FileFormat
from fedminmax.config.messages import read_toml, validated, with_settings
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.config.sections import (
    EMPTY_REPORT,
    FRONTIER,
    NO_LOGGING,
    AuditSection,
    ConfigSections,
    DataSection,
    LoggingSection,
    MethodSection,
    ModelSection,
    PrivacySection,
    ReportSection,
    resolved,
)
from fedminmax.core.certificate import check_provable
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.core.validation import checked_share
from fedminmax.methods.card import default_patience
from fedminmax.methods.catalogue import CARDS

# The option of methods that know how far they are from the optimum.
GAP = "optimality_gap"


@dataclass(frozen=True)
class Source:
    """A file and the owner of its rows; without an owner, the site column names it row by row.

    Without its own ``format``, the file has the format of the configuration.
    """

    path: Path
    owner: str | None
    format: FileFormat | None = None


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
    model: ModelSection
    method: MethodSection
    logging: LoggingSection = NO_LOGGING
    report: ReportSection = EMPTY_REPORT
    validation: float = 0.0
    secure_aggregation: bool | None = None
    same_sites: bool = True
    privacy: PrivacySection | None = None
    weight_column: str | None = None
    audit: tuple[tuple[str, ...], ...] = ()
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
        """The privacy guarantee of the run over all of its rounds; None if there is none."""
        section = self.privacy
        if section is None:
            return None
        return Privacy(
            section.epsilon,
            section.delta,
            clip=section.clip,
            rounds=self.method.rounds,
            unit=section.unit,
            colluding=section.colluding,
            max_loss=section.max_loss,
        )

    @property
    def patience(self) -> int | None:
        """Rounds without improvement on validation rows after which a run stops; None: never."""
        default = default_patience(CARDS[self.method.name].pace, self.validation)
        return self.method.patience or default


def read_config(path: str | Path, settings: Sequence[str] = ()) -> TableConfig:
    """Read and check a configuration; file names are relative to its folder.

    ``settings``, such as "method.rounds=20", replace what the file says.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write one with 'fedminmax init'")
    text, file = read_toml(path)
    try:
        if settings:
            text = with_settings(text, settings)
            file = tomllib.loads(text)
        sections = validated(resolved(file), ConfigSections)
        check_sections(sections)
        config = _config_of(sections, path.parent)
        return replace(checked(config), text=text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


MAX_HARM = "max_harm"


def checked(config: TableConfig) -> TableConfig:
    """Refuse a certificate for models that have none, and what privacy does not cover."""
    method = config.method
    if config.privacy is not None:
        check_covered(certify=method.certify, validation=config.validation)
    if method.finds_frontier and config.validation:
        raise InputError(
            f"frontier: validation = {config.validation:g}; its models are certified, and not "
            "chosen by validation rows: set validation = 0 in [data]"
        )
    if MAX_HARM in method.options and method.baseline is None:
        raise InputError(
            f"max_harm = {method.options[MAX_HARM]} is measured from the plain model, and there is "
            'none; set baseline = "fedavg-fast" in [method], or drop max_harm'
        )
    if method.certify or method.finds_frontier:
        model, schema = config.model, config.schema
        classes = max(len(schema.target.classes), 1)
        linear = LinearStructure(
            classes, len(schema.features), intercept=True, loss=model.loss, ridge=model.ridge
        )
        asked = FRONTIER if method.finds_frontier else "certify"
        check_provable(None if model.hidden else linear, asked)
    return config


def _config_of(sections: ConfigSections, folder: Path) -> TableConfig:
    data, federation = sections.data, sections.federation
    training, test = _sources(data, folder)
    config = TableConfig(
        training=training,
        test=test,
        site_column=data.site_column,
        held_out=data.held_out,
        seed=data.seed,
        format=data.format,
        schema=_schema_of(sections),
        model=sections.model,
        method=sections.method,
        logging=sections.logging,
        report=sections.report,
        validation=data.validation,
        secure_aggregation=federation.secure_aggregation,
        same_sites=federation.same_sites,
        privacy=sections.privacy,
        weight_column=data.weight_column,
    )
    return config if sections.audit is None else _for_audit(config, sections.audit)


def _for_audit(config: TableConfig, audit: AuditSection) -> TableConfig:
    """Return the configuration that measures predictions on all records, and trains nothing."""
    models = tuple(own for own in (audit.predictions, audit.against) if own)
    columns = tuple(dict.fromkeys(column for own in models for column in own))
    taken = {config.schema.target.column, *(own.column for own in config.schema.protected)}
    for column in columns:
        if column in taken:
            raise InputError(
                f"[audit]: column '{column}' is the target or a sensitive attribute; name columns "
                "of predictions"
            )
    if config.privacy is not None:
        raise InputError("[audit]: its sums have no privacy guarantee; remove [privacy]")
    classes = len(config.schema.target.classes)
    for own in models:
        if len(own) not in ({1, classes} if classes == 2 else {max(classes, 1)}):
            raise InputError(
                f"[audit]: {len(own)} columns of predictions are named, and the target has "
                f"{classes or 'no'} classes; name a probability for each class, or of two classes "
                "that of the positive one"
            )
    features = tuple(Feature(column, Kind.NUMERIC) for column in columns)
    schema = replace(
        config.schema, features=features, protected_as_features=False, minimum_group_size=0
    )
    return replace(
        config,
        test=(),
        held_out=0.0,
        validation=0.0,
        schema=schema,
        # Nothing is trained: it says how targets are read.
        model=ModelSection(kind="logistic")
        if classes
        else ModelSection(kind="linear", loss="squared_error"),
        method=replace(config.method, baseline=None, certify=False),
        audit=models,
    )


def _sources(data: DataSection, folder: Path) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """Return the training files and the test files."""
    formats = {name: changes.apply(data.format) for name, changes in data.formats.items()}
    training = tuple(
        Source(folder / file, name, formats.get(name)) for name, file in data.sites.items()
    )
    if data.file is not None:
        training = (Source(folder / data.file, None),)
    test = tuple(
        Source(folder / file, None if data.site_column else name, formats.get(name))
        for name, file in data.test.items()
    )
    return training, test


def _schema_of(sections: ConfigSections) -> Schema:
    """Return what the columns mean.

    A value that is mapped to another one cannot occur: it is not among the classes, group values or
    categories, even if the configuration still lists it.
    """
    data, groups, features = sections.data, sections.groups, sections.features
    maps = {**data.map, **groups.map}

    def occurring(column: str, values: Sequence[str]) -> tuple[str, ...]:
        readings = maps.get(column, {})
        return tuple(value for value in values if readings.get(value, value) == value)

    # The positive class is the last one, in a model and in every rate.
    classes = sorted(data.classes, key=lambda name: name == data.positive)
    return Schema(
        target=Target(data.target, occurring(data.target, classes)),
        features=tuple(
            Feature(
                column,
                feature.kind,
                occurring(column, feature.categories),
                feature.format,
                from_sites=feature.kind is Kind.CATEGORY and not feature.categories,
            )
            for column, feature in features.items()
            if groups.as_features or column not in groups.columns
        ),
        protected=tuple(
            Protected(
                column,
                tuple(groups.bands.get(column, ())),
                occurring(column, groups.values.get(column, ())),
            )
            for column in groups.columns
        ),
        protected_as_features=groups.as_features,
        missing_group=groups.missing,
        minimum_group_size=groups.minimum_size,
        missing_values=data.missing_values,
        unlisted_group=groups.unlisted,
        merge_spellings=data.merge_spellings,
        small_groups=groups.small,
        person_column=data.person_column,
        maps=maps,
        own_values=data.own_values,
        missing_by_column={
            column: feature.missing_values
            for column, feature in features.items()
            if feature.missing_values
        },
        units={column: feature.unit for column, feature in features.items() if feature.unit},
    )


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What a call sets instead of the configuration; None, or False, keeps what the file says."""

    rounds: int | None = None
    seed: int | None = None
    validation: float | None = None
    patience: int | None = None
    optimality_gap: float | None = None
    certify: bool = False
    frontier: bool = False
    secure_aggregation: bool | None = None
    tensorboard: bool = False
    mlflow_uri: str | None = None

    def apply(self, config: TableConfig) -> TableConfig:
        """Return the configuration with these settings; refuse what it does not allow."""
        method, logging = config.method, config.logging
        options = method.options
        if self.optimality_gap is not None:
            self._check_gap_of(method.name)
            options = {**options, GAP: repr(self.optimality_gap)}
        if self.frontier:
            check_has_frontier(method.name)
            options = {**options, FRONTIER: "true"}
        changed = replace(
            config,
            seed=config.seed if self.seed is None else self.seed,
            validation=config.validation
            if self.validation is None
            else checked_share(self.validation),
            secure_aggregation=config.secure_aggregation
            if self.secure_aggregation is None
            else self.secure_aggregation,
            method=replace(
                method,
                options=options,
                rounds=self.rounds or method.rounds,
                patience=self.patience or method.patience,
                certify=self.certify or method.certify,
            ),
            logging=LoggingSection(
                self.tensorboard or logging.tensorboard, self.mlflow_uri or logging.mlflow_uri
            ),
        )
        _check_validation(changed)
        return checked(changed)

    def _check_gap_of(self, method: str) -> None:
        if GAP not in CARDS[method].option_types:
            raise InputError(
                f"optimality_gap = {self.optimality_gap:g}: {method} does not know how far it is "
                'from the optimum; set name = "fedminmax-fast" in [method]'
            )


def check_has_frontier(method: str) -> None:
    """Refuse a frontier of a method that cannot find it."""
    if FRONTIER not in CARDS[method].option_types:
        raise InputError(
            f"frontier: {method} has no certified weights between those of the plain and of the "
            'minimax model; set name = "fedminmax-fast" in [method]'
        )


def _check_validation(config: TableConfig) -> None:
    """Refuse to choose a round, or to stop, by validation rows that there are none of."""
    method = config.method
    if config.validation == 0.0 and method.patience is not None:
        raise InputError(
            f"patience = {method.patience} needs validation rows to detect an improvement; "
            "set validation = 0.1 in [data]"
        )
    if config.validation == 0.0 and method.iterate is Iterate.BEST:
        raise InputError(
            '[method] iterate = "best" is chosen by validation rows; set validation = 0.1 in [data]'
        )


NO_OVERRIDES = Overrides()
