"""Cards: what users need to know about a method to choose it, and how to build it from text.

What a run, a site or the network has to know of a method without looking into it stands here, too,
and the defaults of what is trained: the method, its baseline, rounds, loss and ridge. These depend
on how much work a method does in a round. Methods that look ahead stop by themselves, are compared
with a plain model trained by the same server, and train additive and linear models with a loss and
a ridge for which sums prove how low the worst group's risk can be (see ``core.certificate``).
"""

from collections.abc import Container, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fedminmax.core.convergence import WORST_RECORDS, Goal
from fedminmax.core.convergence import WORST_SITE as WORST_SITE_RISK
from fedminmax.core.errors import InputError
from fedminmax.core.noise import Unit
from fedminmax.core.validation import MEAN, WORST_GROUP, WORST_SITE, Judge
from fedminmax.methods.method import AnyMethod, takes_one_step

# How much of its share of the records every group keeps as weight. A network can fit any group that
# it is trained for alone: with weight on one or two groups it gets worse for all others, and on
# test records for those, too. (28 splits of twelve tables: better than 0 for the worst group in 19,
# in the mean in 27.)
KEEP_SHARE_FOR_NETWORKS = 0.5
# Fields for a method's name and result, which do not affect how it works.
DESCRIPTIVE = ("name", "output")
MethodT = TypeVar("MethodT")
NOT_STATED = "not stated"
# The class attribute that holds the card.
ATTRIBUTE = "card"
PAPADAKI = "Papadaki et al. 2021, Appendix B"
OURS = "ours: the paper gives none"
RATE = {"learning_rate": PAPADAKI}
SAFE_RATE = {"learning_rate": "ours: as large as is safe for the rows (networks: at most 0.1)"}
ADVERSARY = {"adversary_rate": PAPADAKI}
LOCAL = {"epochs": PAPADAKI, "batch_size": PAPADAKI}
KEEP = {"keep_share": "none; on tables ours: networks 0.5"}
NEAR = {"tolerance": "none; on tables ours: additive and linear models 0.005"}
FLOOR = KEEP | {"min_weight": "Papadaki et al. 2021, Algorithm 1 (no floor)"}
AUTHORS = "the authors' code"
START = {"start": "Papadaki et al. 2021 (lambda^0 = n_k / n)"}
SNAPSHOTS = {"adversary_rate": OURS, "steps": OURS, "batch_size": OURS}
FITS = {"fit_rounds": OURS, "warm_start": OURS}
LOOK_AHEAD = {
    "curvature": "ours: second derivatives, for additive and linear models",
    "learning_rate": "ours: of the first step; the server chooses the others",
    "momentum": "Kingma and Ba 2015 (Adam)",
    "linear_start": "ours: for networks on tables true",
}
GAP = {"optimality_gap": "ours: a tenth of what reports call converged"}


class Pace(Enum):
    """How much work a round does, which determines how many rounds a run needs."""

    ONE_STEP = "one gradient step per round"
    LOOK_AHEAD = "one step per round, as long as the sums by group allow"
    LOCAL_EPOCHS = "local epochs in every round"


@dataclass(frozen=True)
class Option:
    """One setting of a method: its default, and where that comes from."""

    name: str
    default: str
    source: str


class Over(Enum):
    """Whose risks a method's objective is about."""

    GROUPS = "groups"
    SITES = "sites"
    SITES_AND_GROUPS = "sites and groups"
    ROWS = "rows"


class Weights(Enum):
    """What the entries of ``state.weights`` belong to."""

    NONE = "nothing"
    GROUPS = "groups"
    SITES = "sites"
    CELLS = "groups and classes"


@dataclass(frozen=True)
class MethodCard:
    """A method as users see it. As a decorator it is given to the method's class.

    Args:
        key: the method's name on the command line and in configurations.
        make: the method's class, which the decorator fills in.
        paper: who proposed it.
        optimises: what it minimises, as text for tables; no code depends on it.
        over: whose risks the objective is about.
        pace: how much work a round does.
        minimax: whether it minimises the highest of these risks.
        parity: whether it aims at equal rates of positive answers.
        weights: what the entries of ``state.weights`` belong to.
        absent_keep_weight: whether an absent group or site keeps its weight while the weights sum
            to one; False for weights that are not a distribution, or are recomputed every round.
        works_with_absent: False if absent sites invalidate the paper's guarantees.
        requests: at most how many requests a site gets in a round (see ``AsksAgain``).
        mixes_fits: whether the result is a mixture, with one model for every fit of ``fit_rounds``
            rounds.
        private_units: for which units noise can keep a privacy guarantee: what a row adds to the
            sums depends on the order alone, or for a site, its reply divided by its rows is a step
            on the scale 1.
        sources: for each option, where its default comes from.
        required: example values for options without a default.
    """

    key: str
    make: type[Any] = object
    _: KW_ONLY
    paper: str
    optimises: str
    over: Over
    pace: Pace
    minimax: bool = False
    parity: bool = False
    weights: Weights = Weights.NONE
    absent_keep_weight: bool = True
    works_with_absent: bool = False
    requests: int = 1
    mixes_fits: bool = False
    private_units: tuple[Unit, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, method: type[MethodT]) -> type[MethodT]:
        """Give the method this card, which the catalogue finds and users choose by."""
        setattr(method, ATTRIBUTE, replace(self, make=method))
        return method

    @property
    def minimax_over_groups(self) -> bool:
        """Whether the method minimises the worst group's risk."""
        return self.minimax and self.over is Over.GROUPS

    @property
    def scope(self) -> str:
        """Whose risks the objective is about, as text."""
        return f"{self.over.value} (parity)" if self.parity else self.over.value

    @property
    def reveals(self) -> str:
        """What a site's reply reveals to the server."""
        return self.build({}).reveals.value

    @property
    def options(self) -> list[Option]:
        """All settings with their defaults and sources."""
        example = self.build({})
        return [
            Option(name, _format(getattr(example, name)), self.sources.get(name, NOT_STATED))
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

    def build(
        self, common: Mapping[str, object], options: Mapping[str, str] = {}
    ) -> AnyMethod[Any]:
        """Build the method from its ``options`` (text) and the ``common`` settings it supports."""
        kinds = self.option_types
        for name in options:
            if name not in kinds:
                raise InputError(
                    f"{self.key} has no option '{name}'; it has {', '.join(kinds) or 'none'}"
                )
        texts = dict(self.required) | dict(options)
        values = {name: _parse(self.key, name, text, kinds[name]) for name, text in texts.items()}
        shared = {name: value for name, value in common.items() if name in kinds}
        method: AnyMethod[Any] = self.make(**(shared | values))
        return method


def card_of(method: object) -> MethodCard | None:
    """Return the card of a method or of its class; None for one that was not registered.

    A subclass does not inherit the card, because it may do something else.
    """
    kind = method if isinstance(method, type) else type(method)
    card = vars(kind).get(ATTRIBUTE)
    return card if isinstance(card, MethodCard) else None


def pace_of(method: AnyMethod[Any]) -> Pace:
    """Return how much work a round of a method does; without a card, derived from its kind."""
    card = card_of(method)
    if card is None:
        return Pace.ONE_STEP if takes_one_step(method) else Pace.LOCAL_EPOCHS
    return card.pace


def _plays_minimax(method: AnyMethod[Any], card: MethodCard) -> bool:
    """Return whether the highest risk is minimised; with a fixed adversary it is the mean risk."""
    return card.minimax and getattr(method, "adversary_rate", 1) != 0


def goal_of(method: AnyMethod[Any]) -> Goal:
    """Return what a method minimises, as far as risks by group show it.

    >>> from fedminmax.methods.fedminmax import FedMinMax
    >>> goal_of(FedMinMax(min_weight=0.01))
    Goal(minimax=True, weights_floor=0.01, keep_share=0.0, unlogged='')
    >>> goal_of(FedMinMax(adversary_rate=0.0)).minimax
    False
    """
    card = card_of(method)
    if card is None or not card.minimax_over_groups or not _plays_minimax(method, card):
        unlogged = {Over.SITES: WORST_SITE_RISK, Over.ROWS: WORST_RECORDS}
        worst = unlogged.get(card.over, "") if card is not None and card.minimax else ""
        return Goal(minimax=False, unlogged=worst)
    keep_share = getattr(method, "keep_share", 0.0)
    # Within a tolerance, or above what groups can reach, weights are not those of the worst group.
    objective = getattr(method, "objective", None)
    is_other = getattr(method, "tolerance", 0.0) or getattr(objective, "value", "risk") != "risk"
    floor = None if is_other else getattr(method, "min_weight", None)
    return Goal(minimax=True, weights_floor=floor, keep_share=keep_share)


def judge_of(method: AnyMethod[Any]) -> Judge:
    """Return by which objective validation rows choose among a method's models: its own.

    It is the method's ``judge`` if it has one, else what its card says it minimises. Without a
    card, it is the worst group's risk. Methods that aim at equal rates minimise the mean risk
    besides, which is what losses show of them.

    >>> from fedminmax.methods.fedavg import FedAvg
    >>> judge_of(FedAvg()).players.value
    'rows'
    """
    judge = getattr(method, "judge", None)
    if isinstance(judge, Judge):
        return judge
    card = card_of(method)
    if card is None:
        return WORST_GROUP
    if not _plays_minimax(method, card):
        return MEAN
    worst = WORST_SITE if card.over is Over.SITES else WORST_GROUP
    # A tolerance keeps a share, too, but which one is known only at the end of training.
    of_tolerance = KEEP_SHARE_FOR_NETWORKS if getattr(method, "tolerance", 0.0) else 0.0
    return replace(worst, keep_share=getattr(method, "keep_share", 0.0) or of_tolerance)


def check_private_unit(method: AnyMethod[Any], unit: Unit) -> None:
    """Refuse a method that cannot do with noisy sums in which no unit can be found."""
    card = card_of(method)
    if card is None or unit not in card.private_units:
        raise InputError(
            f'{method.name} cannot keep a privacy guarantee with unit = "{unit.value}"; choose '
            "fedminmax-fast or fedminmax"
        )


def max_members(method: AnyMethod[Any], rounds: int) -> int:
    """Return how many models the result of this many rounds may mix: one per fit, else one.

    >>> from fedminmax.methods.oracle_minimax import OracleMinimax
    >>> max_members(OracleMinimax(fit_rounds=9), 100)
    10
    """
    card = card_of(method)
    if card is None or not card.mixes_fits:
        return 1
    fit_rounds: int = cast("Any", method).fit_rounds
    return max(rounds // (fit_rounds + 1), 1)


def _parse(key: str, name: str, text: str, kind: Any) -> object:
    """Convert text to a value of this type; the error says what was expected."""
    if get_origin(kind) in (Union, UnionType):
        if text == "none" and NoneType in get_args(kind):
            return None
        kind = next(part for part in get_args(kind) if part is not NoneType)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text]
        if issubclass(kind, Enum):
            return kind[text.upper().replace("-", "_")]
        return kind(text)
    except (ValueError, KeyError):
        raise InputError(f"{key}: {name} = {text} was given; expected {_expected(kind)}") from None


def _expected(kind: type[Any]) -> str:
    if kind is bool:
        return "true or false"
    if issubclass(kind, Enum):
        return " or ".join(member.name.lower() for member in kind)
    return {int: "a whole number", float: "a number"}.get(kind, kind.__name__)


def _format(value: object) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


DEFAULT_METHOD = "fedminmax-fast"
# Maximum rounds of a run; methods that look ahead stop earlier if nothing is left to gain.
DEFAULT_ROUNDS = {Pace.LOOK_AHEAD: 200, Pace.ONE_STEP: 500, Pace.LOCAL_EPOCHS: 500}
# Under a privacy guarantee every round costs noise in all others; chosen on Adult.
PRIVATE_ROUNDS = {Pace.LOOK_AHEAD: 20, Pace.ONE_STEP: 300, Pace.LOCAL_EPOCHS: 20}
# Rounds in a row without improvement on validation rows. Networks overfit within some ten rounds of
# these methods, so the best round is long past by then.
PATIENCE = 30
# By how much of the lowest possible risk the worst group's may be above it, so that the mean is
# lower: the largest of five that left the worst group of no table more than 0.5% worse than exact
# minimax (0) on test records, on 16 tables and five splits. Parts of the worst risk's standard
# error did no better, and need one sum more (experiments/table_models/near_minimax.py).
TOLERANCE = 0.005
# Small enough not to hurt the worst group, large enough to prove how good a model can be. Squared
# errors need less, so that a line through noiseless points is recovered.
RIDGES = {"cross_entropy": 1e-4, "brier": 1e-4, "squared_error": 1e-6}
# Additive models are smoothed besides: this makes their penalised risk strongly convex.
ADDITIVE_RIDGE = 1e-6


def default_baseline(pace: Pace) -> str:
    """Return the key of the plain model that a method of this pace is compared with."""
    return "fedavg-fast" if pace is Pace.LOOK_AHEAD else "fedavg"


def default_patience(pace: Pace, validation: float) -> int | None:
    """Return after how many rounds without improvement to stop; None means never.

    >>> default_patience(Pace.LOOK_AHEAD, 0.1), default_patience(Pace.ONE_STEP, 0.1)
    (30, None)
    """
    return PATIENCE if validation and pace is Pace.LOOK_AHEAD else None


def default_loss(pace: Pace, *, classifies: bool) -> str:
    """Return the name of the loss to train with.

    >>> default_loss(Pace.LOOK_AHEAD, classifies=True)
    'cross_entropy'
    """
    if not classifies:
        return "squared_error"
    return "cross_entropy" if pace is Pace.LOOK_AHEAD else "brier"


def default_ridge(pace: Pace, loss: str, *, linear: bool, additive: bool = False) -> float:
    """Return m of the penalty m/2 |theta|^2; networks have none. Additive models are linear.

    >>> default_ridge(Pace.LOOK_AHEAD, "brier", linear=True)
    0.0001
    """
    if additive:
        return ADDITIVE_RIDGE
    return RIDGES[loss] if linear and pace is Pace.LOOK_AHEAD else 0.0


def default_trade(
    given: Container[str], pace: Pace, *, linear: bool, private: bool = False
) -> dict[str, float]:
    """Return by which option the mean counts beside the worst risk; none if one of both is given.

    A tolerance needs second derivatives, which a privacy guarantee does not allow.

    >>> default_trade((), Pace.LOOK_AHEAD, linear=True)
    {'tolerance': 0.005}
    >>> default_trade(["tolerance"], Pace.LOOK_AHEAD, linear=True)
    {}
    """
    if pace is not Pace.LOOK_AHEAD or "keep_share" in given or "tolerance" in given:
        return {}
    if linear:
        return {} if private else {"tolerance": TOLERANCE}
    return {"keep_share": KEEP_SHARE_FOR_NETWORKS}
