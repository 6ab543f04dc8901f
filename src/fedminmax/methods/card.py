"""What users want to know of a method before they choose it, and how to make one from words."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args

from fedminmax.core.errors import InputError
from fedminmax.methods.method import AnyMethod

# Fields that say what a method is called and returns, not how it works.
DESCRIPTIVE = ("name", "output")


class Pace(Enum):
    """How much a round does, and so how many rounds a run needs."""

    ONE_STEP = "one gradient step per round"
    LOOK_AHEAD = "one step per round, as long as the sums by group allow"
    LOCAL_EPOCHS = "local epochs in every round"


@dataclass(frozen=True)
class Option:
    """One setting of a method: its default, and who says so."""

    name: str
    default: str
    source: str


@dataclass(frozen=True)
class MethodCard:
    """A method as users see it.

    ``sources`` says of every option where its default comes from; ``required`` are values for
    options without a default; ``works_with_absent`` is False where some holders' absence breaks
    what the method promises.
    """

    key: str
    make: type[Any]
    paper: str
    optimises: str
    over: str
    pace: Pace
    works_with_absent: bool
    sources: Mapping[str, str]
    required: Mapping[str, str]

    @property
    def minimax_over_groups(self) -> bool:
        """Whether the method minimises the worst group's risk."""
        return self.optimises.startswith("worst group's risk")

    @property
    def reveals(self) -> str:
        """What a holder's reply shows to the server."""
        return self.build({}).reveals.value

    @property
    def options(self) -> list[Option]:
        """All settings with their defaults and sources."""
        example = self.build({})
        return [
            Option(name, _shown(getattr(example, name)), self.sources[name])
            for name in self.option_types
        ]

    @property
    def option_types(self) -> dict[str, Any]:
        """The settings by name, with their types."""
        return {
            field.name: field.type
            for field in fields(self.make)
            if field.init and field.name not in DESCRIPTIVE
        }

    def build(self, common: Mapping[str, object], own: Mapping[str, str] = {}) -> AnyMethod[Any]:
        """Make the method: ``own`` settings as words, ``common`` ones where it has them."""
        kinds = self.option_types
        for name in own:
            if name not in kinds:
                raise InputError(
                    f"{self.key} has no option '{name}'; it has {', '.join(kinds) or 'none'}"
                )
        words = dict(self.required) | dict(own)
        values = {name: _parse(self.key, name, word, kinds[name]) for name, word in words.items()}
        shared = {name: value for name, value in common.items() if name in kinds}
        method: AnyMethod[Any] = self.make(**(shared | values))
        return method


def _parse(key: str, name: str, word: str, kind: Any) -> object:
    """Turn a word into a value of this type, or say what was expected."""
    if isinstance(kind, UnionType):
        if word == "none" and NoneType in get_args(kind):
            return None
        kind = next(part for part in get_args(kind) if part is not NoneType)
    try:
        if kind is bool:
            return {"true": True, "false": False}[word]
        if issubclass(kind, Enum):
            return kind[word.upper().replace("-", "_")]
        return kind(word)
    except (ValueError, KeyError):
        raise InputError(f"{key}: {name} = {word} was given; expected {_expected(kind)}") from None


def _expected(kind: type[Any]) -> str:
    if kind is bool:
        return "true or false"
    if issubclass(kind, Enum):
        return " or ".join(member.name.lower().replace("_", "-") for member in kind)
    return {int: "a whole number", float: "a number"}.get(kind, kind.__name__)


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return value.name.lower().replace("_", "-")
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
