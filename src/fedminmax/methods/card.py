"""Cards: what users want to know of a method before they choose it, and how to build it from text.

``register`` gives a method its card. The constants say where defaults that many methods share come
from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedminmax.core.errors import InputError
from fedminmax.methods.method import AnyMethod

# Fields that say what a method is called and returns, not how it works.
DESCRIPTIVE = ("name", "output")
MethodT = TypeVar("MethodT")
NOT_STATED = "not stated"
# Where a method's class has its card.
ATTRIBUTE = "card"
PAPADAKI = "Papadaki et al. 2021, Appendix B"
OURS = "ours: the paper gives none"
RATE = {"learning_rate": PAPADAKI}
SAFE_RATE = {"learning_rate": "ours: as large as is safe for the rows (networks: at most 0.1)"}
ADVERSARY = {"adversary_rate": PAPADAKI}
LOCAL = {"epochs": PAPADAKI, "batch_size": PAPADAKI}
FLOOR = {"epsilon": "Papadaki et al. 2021, Algorithm 1 (no floor)"}
AUTHORS = "the authors' code"
START = {"start": "Papadaki et al. 2021 (lambda^0 = n_k / n)"}
SNAPSHOTS = {"adversary_rate": OURS, "steps": OURS, "batch_size": OURS}
FITS = {"fit_rounds": OURS, "warm_start": OURS}
LOOK_AHEAD = {
    "curvature": "ours: second derivatives for linear models of moderate size",
    "learning_rate": "ours: of the first step; the server chooses the others",
    "momentum": "Kingma and Ba 2015 (Adam)",
}
GAP = {"gap": "ours: a tenth of what reports call converged"}


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


class Over(Enum):
    """Whom a method's objective looks after."""

    GROUPS = "groups"
    HOLDERS = "holders"
    HOLDERS_AND_GROUPS = "holders and groups"
    ROWS = "rows"


class Weights(Enum):
    """What the entries of ``state.weights`` belong to."""

    NONE = "nothing"
    GROUPS = "groups"
    HOLDERS = "holders"
    CELLS = "groups and classes"


@dataclass(frozen=True)
class MethodCard:
    """A method as users see it; ``register`` says what the fields mean."""

    key: str
    make: type[Any]
    paper: str
    optimises: str
    over: Over
    pace: Pace
    minimax: bool
    parity: bool
    weights: Weights
    absent_keep_weight: bool
    works_with_absent: bool
    sources: Mapping[str, str]
    required: Mapping[str, str]

    @property
    def minimax_over_groups(self) -> bool:
        """Whether the method minimises the worst group's risk."""
        return self.minimax and self.over is Over.GROUPS

    @property
    def scope(self) -> str:
        """Whom the method looks after, in words."""
        return f"{self.over.value} (parity)" if self.parity else self.over.value

    @property
    def reveals(self) -> str:
        """What a holder's reply shows to the server."""
        return self.build({}).reveals.value

    @property
    def options(self) -> list[Option]:
        """All settings with their defaults and sources."""
        example = self.build({})
        return [
            Option(name, _shown(getattr(example, name)), self.sources.get(name, NOT_STATED))
            for name in self.option_types
        ]

    @property
    def option_types(self) -> dict[str, Any]:
        """The settings by name, with their types."""
        kinds = get_type_hints(self.make)
        return {
            field.name: kinds[field.name]
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


def register(
    *,
    key: str,
    paper: str,
    optimises: str,
    over: Over,
    pace: Pace,
    minimax: bool = False,
    parity: bool = False,
    weights: Weights = Weights.NONE,
    absent_keep_weight: bool = True,
    works_with_absent: bool = False,
    sources: Mapping[str, str] = {},
    required: Mapping[str, str] = {},
) -> Callable[[type[MethodT]], type[MethodT]]:
    """Give a method its card, by which the catalogue finds it and users choose it.

    Args:
        key: the method's name on the command line and in configurations.
        paper: who proposed it.
        optimises: what it minimises, in words for tables; nothing is decided by them.
        over: whom the objective looks after.
        pace: how much a round does.
        minimax: whether it minimises the highest risk of those that it looks after.
        parity: whether it looks for equal rates of positive answers.
        weights: what the entries of ``state.weights`` belong to.
        absent_keep_weight: whether whoever is absent from a round keeps its weight while the
            weights add up to one; False for weights that are no distribution, or are made anew.
        works_with_absent: False where some holders' absence breaks what the paper promises.
        sources: for each option, where its default comes from.
        required: values for options without a default, where an example is wanted.
    """

    def with_card(method: type[MethodT]) -> type[MethodT]:
        card = MethodCard(
            key=key,
            make=method,
            paper=paper,
            optimises=optimises,
            over=over,
            pace=pace,
            minimax=minimax,
            parity=parity,
            weights=weights,
            absent_keep_weight=absent_keep_weight,
            works_with_absent=works_with_absent,
            sources=sources,
            required=required,
        )
        setattr(method, ATTRIBUTE, card)
        return method

    return with_card


def card_of(method: object) -> MethodCard | None:
    """Return the card of a method or of its class; None for one that was not registered.

    What is derived from a method with a card may do something else, and has none.
    """
    kind = method if isinstance(method, type) else type(method)
    card = vars(kind).get(ATTRIBUTE)
    return card if isinstance(card, MethodCard) else None


def _parse(key: str, name: str, word: str, kind: Any) -> object:
    """Turn a word into a value of this type, or say what was expected."""
    if get_origin(kind) in (Union, UnionType):
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
        return " or ".join(member.name.lower() for member in kind)
    return {int: "a whole number", float: "a number"}.get(kind, kind.__name__)


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
