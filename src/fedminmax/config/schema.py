"""What the columns of the sites' tables mean: agreed once, before any row is read."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from itertools import pairwise

from fedminmax.core.small_groups import MINIMUM_GROUP, SmallGroupRule, minimum_included

DEFAULT_MISSING_VALUES = ("", "?", "NA", "N/A", "NaN", "nan", "null")
# Those that `fedminmax init` proposes: databases and spreadsheets write some more.
PROPOSED_MISSING_VALUES = (*DEFAULT_MISSING_VALUES, "NULL", "<NA>", "#N/A", "None", "-", ".")


class Kind(Enum):
    """How a feature's column is read; all kinds except categories become one number per row."""

    NUMERIC = "numeric"
    CATEGORY = "category"
    BOOLEAN = "boolean"
    DATE = "date"


class MissingGroup(Enum):
    """How to handle a row whose value in a sensitive attribute is missing or not listed."""

    ERROR = "error"
    OWN_GROUP = "own_group"
    LEAVE_OUT = "leave_out"


@dataclass(frozen=True)
class Feature:
    """A column that the model sees.

    A category without a list takes its values ``from_sites``: it is open until they agree on them.
    """

    column: str
    kind: Kind
    categories: tuple[str, ...] = ()
    date_format: str | None = None
    from_sites: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the sites have yet to agree on its categories."""
        return self.from_sites and not self.categories


@dataclass(frozen=True)
class Protected:
    """A column that defines groups; ``edges`` cut a numeric one into bands.

    ``values`` are the agreed ones; without them, any value forms a group.
    """

    column: str
    edges: tuple[float, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands, low to high; an edge belongs to the band that begins with it.

        >>> Protected("age", (30, 45)).bands
        ('age under 30', 'age 30 to 45', 'age 45 and over')
        """
        if not self.edges:
            return ()
        marks = [f"{edge:.10g}" for edge in self.edges]
        between = [f"{self.column} {low} to {high}" for low, high in pairwise(marks)]
        return (
            f"{self.column} under {marks[0]}",
            *between,
            f"{self.column} {marks[-1]} and over",
        )


@dataclass(frozen=True)
class Target:
    """The column to predict: one of ``classes``, or a quantity if there are none."""

    column: str
    classes: tuple[str, ...] = ()

    @property
    def is_quantity(self) -> bool:
        """Whether this is regression."""
        return not self.classes


@dataclass(frozen=True)
class Schema:
    """Target, features and groups; ``missing_values`` are texts that mean a missing value.

    ``unlisted_group`` is how training rows with an unlisted protected value are handled.
    ``merge_spellings`` treats labels, groups and categories that differ only in letter case or
    spaces as one. ``small_groups`` is how groups with fewer training rows than
    ``minimum_group_size`` are handled. Rows with the same value in the ``person_column`` are of one
    person: they are held out together. ``maps`` tells, by column, what a value is read as, where
    sites code the same thing differently; in the columns ``own_values`` sites may have values
    that no other site has. ``missing_by_column`` are further texts that mean a missing value, in
    one column each; ``units`` are texts beside the numbers of a column, such as %.
    """

    target: Target
    features: tuple[Feature, ...]
    protected: tuple[Protected, ...]
    _: KW_ONLY
    protected_as_features: bool = False
    missing_group: MissingGroup = MissingGroup.ERROR
    minimum_group_size: int = MINIMUM_GROUP
    missing_values: tuple[str, ...] = DEFAULT_MISSING_VALUES
    unlisted_group: MissingGroup = MissingGroup.ERROR
    merge_spellings: bool = False
    small_groups: SmallGroupRule = SmallGroupRule.BY_SIZE
    person_column: str | None = None
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    own_values: tuple[str, ...] = ()
    missing_by_column: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    def missing_of(self, column: str) -> tuple[str, ...]:
        """Texts that mean a missing value in this column."""
        return (*self.missing_values, *self.missing_by_column.get(column, ()))

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Columns that a prediction needs."""
        return tuple(feature.column for feature in self.features)

    @property
    def open_columns(self) -> tuple[str, ...]:
        """Categories whose values the sites have yet to agree on."""
        return tuple(feature.column for feature in self.features if feature.is_open)

    @property
    def minimum_included(self) -> int:
        """How many training rows a group needs before an adversary may choose it."""
        return minimum_included(self.minimum_group_size, self.small_groups)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that training needs, each once."""
        protected = (entry.column for entry in self.protected)
        person = () if self.person_column is None else (self.person_column,)
        columns = (*self.feature_columns, *protected, self.target.column, *person)
        return tuple(dict.fromkeys(columns))
