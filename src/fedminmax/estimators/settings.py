"""The settings that classifier and regressor share, as one record of constructor parameters.

scikit-learn reads parameters off the constructor and expects them to be stored unchanged, which is
what a dataclass does. They are validated in ``fit``, as its conventions require.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedminmax.core.additive.model import ADDITIVE, DIRECTIONS
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.models import checked_widths
from fedminmax.core.small_groups import MINIMUM_GROUP, SmallGroupRule
from fedminmax.core.text import is_finite
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS, checked_share
from fedminmax.methods.card import (
    DEFAULT_ROUNDS,
    Pace,
    default_loss,
    default_patience,
    default_ridge,
    default_trade,
    pace_of,
)
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.checks import check_whole, checked_method
from fedminmax.methods.shared.look_ahead import DEFAULT_GAP, LookAhead

# Settings of the default method; a method that the user gives has its own.
DEFAULT_METHOD_SETTINGS = (
    "optimality_gap",
    "learning_rate",
    "adversary_rate",
    "min_weight",
    "keep_share",
    "tolerance",
)
ADVERSARY_RATE = 0.1
LINEAR, NETWORK = "linear", "mlp"
KINDS = (ADDITIVE, LINEAR, NETWORK)
MAX_PAIRS = 10


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingSettings:
    """How a model is trained.

    Args:
        method: any method of fedminmax, such as ``AFL()``. None is ``FedMinMaxFast``, which needs
            no rate; if one of the two rates below is given it is ``FedMinMax``, Algorithm 1 of
            the paper, with its tail average as answer.
        optimality_gap: FedMinMaxFast stops when the worst group's risk is within this share of
            the lowest possible; None is 1e-4; 0 runs all ``rounds``.
        learning_rate: Algorithm 1's step size of the model; by default one over the largest
            curvature that any weighting of the groups can give a linear model (a network: at most
            0.1).
        adversary_rate: Algorithm 1's step size of the groups' weights (0.1); 0 ignores the groups.
        min_weight: the minimum weight of a group, above what it keeps.
        keep_share: every group keeps this part of its share of the rows as weight; 0 is minimax, 1
            would be plain training. None is 0.5 for a network with FedMinMaxFast, else 0.
        tolerance: by how much of the lowest possible worst risk a model's may be above it; among
            these models, FedMinMaxFast finds the one with the lowest mean. 0 is exact minimax;
            None is 0.005 for additive and linear models, unless ``keep_share`` is given.
        minimum_group: groups with fewer rows are small.
        small: how small groups are treated: "by_size" weights each by its share of the rows and
            never as the worst group, "merge" combines them into one group, "include" treats them
            like any other.
        model: "additive", a sum of effects of all columns and of some pairs of columns, whose
            smoothing is chosen from the data; "linear" (for classes: logistic); or "mlp", a
            network with ``hidden`` layers. None is a network if there are hidden layers, else
            additive with a method that uses second derivatives, as FedMinMaxFast does, and linear
            with others.
        hidden: widths of hidden ReLU layers of a network.
        pairs: how many pairs of columns an additive model may have; those that help are chosen.
        smoothness: factor on the smoothing that the data choose for an additive model; larger
            effects bend less.
        monotone: columns of numbers or dates whose effect in an additive model may only go "up", or
            "down", such as ``{"age": "up"}``; keys are names, or positions where columns have no
            names. The score is the log-odds of the last of two classes, or the prediction. These
            columns are in no pair.
        ridge: m of the penalty m/2 |theta|^2 on all of a linear model's parameters, intercepts
            included; risks are reported without it. 0 is none; a network has none. None is 1e-4
            (squared error: 1e-6) for linear models with FedMinMaxFast, else 0; additive models
            have 1e-6 and need some.
        rounds: the maximum number of rounds; each is one pass over all rows. None is 200 if the
            method stops by itself, as FedMinMaxFast does on linear models, else 500.
        iterate: which model to return, "average", "last", "tail_average" or "best", the one that
            validation rows choose. None is the best one if there are validation rows, else the
            method's own answer. FedMinMaxFast chooses by itself, unless validation rows do.
        validation: share of each site's rows, stratified by group and class, that choose the
            round and are not trained on; None is 0.1 for a network and 0 for a linear model.
        patience: stop after this many consecutive rounds without improvement on validation rows;
            None is 30 for FedMinMaxFast with such rows, else never.
        standardize: scale features (and a regressor's target) to mean 0 and deviation 1 first.
        random_state: seed of a network's initialisation and of a method's randomness; a linear
            model starts at 0.
        device: where to train, such as "cpu" or "cuda"; prediction is on the CPU.
    """

    method: AnyMethod[Any] | None = None
    optimality_gap: float | None = None
    learning_rate: float | None = None
    adversary_rate: float | None = None
    min_weight: float = 0.0
    keep_share: float | None = None
    tolerance: float | None = None
    minimum_group: int = MINIMUM_GROUP
    small: str = "by_size"
    model: str | None = None
    hidden: tuple[int, ...] = ()
    pairs: int = MAX_PAIRS
    smoothness: float = 1.0
    monotone: Mapping[Any, str] | None = None
    ridge: float | None = None
    rounds: int | None = None
    iterate: str | None = None
    validation: float | None = None
    patience: int | None = None
    standardize: bool = True
    random_state: Any = None
    device: str = "cpu"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn whether missing values are allowed."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = kind_of(self) == ADDITIVE
        return tags


def check_settings(settings: TrainingSettings) -> None:
    """Refuse settings that cannot work, or that would be ignored."""
    check_whole("rounds", minimum=1, rounds=rounds_of(settings))
    check_whole("minimum_group", minimum=0, minimum_group=settings.minimum_group)
    _check_additive(settings)
    which = iterate_of(settings)
    share = validation_share(settings)
    if settings.patience is not None:
        check_whole("patience", minimum=1, patience=settings.patience)
    for name, asked in (("iterate", which is Iterate.BEST), ("patience", settings.patience)):
        if asked and share == 0.0:
            raise InputError(
                f"{name} = {getattr(settings, name)!r} needs validation rows; set validation=0.1"
            )
    if pace_of_settings(settings) is Pace.LOOK_AHEAD and which not in (None, Iterate.BEST):
        raise InputError(
            f"iterate = {settings.iterate!r} was given with a method that chooses its model by "
            "itself; drop it, or give another method, such as method=FedMinMax()"
        )
    small_rule_of(settings)
    if not isinstance(settings.standardize, (bool, np.bool_)):
        raise InputError(f"standardize = {settings.standardize!r}; give True or False")
    if settings.method is None:
        for name in ("optimality_gap", "tolerance"):
            if getattr(settings, name) is not None and _asks_for_algorithm_1(settings):
                raise InputError(
                    f"{name} = {getattr(settings, name)!r} was given with a rate, which is for "
                    "Algorithm 1, and that does not know its distance to the optimum; drop the "
                    f"rate, or {name}"
                )
        return
    checked_method(settings.method)
    defaults = {field.name: field.default for field in fields(settings)}
    for name in DEFAULT_METHOD_SETTINGS:
        if getattr(settings, name) != defaults[name]:
            raise InputError(
                f"{name} = {getattr(settings, name)} was given together with a method; give it to "
                f"{settings.method.name} instead"
            )


def _check_additive(settings: TrainingSettings) -> None:
    kind = kind_of(settings)
    check_whole("pairs", minimum=0, pairs=settings.pairs)
    if not is_finite(settings.smoothness) or settings.smoothness <= 0:
        raise InputError(f"smoothness = {settings.smoothness!r}; give a positive number, such as 1")
    if kind != ADDITIVE:
        for name, default in (("pairs", MAX_PAIRS), ("smoothness", 1.0), ("monotone", None)):
            if getattr(settings, name) != default:
                raise InputError(
                    f"{name} = {getattr(settings, name)!r} is for additive models, and this one is "
                    f"{kind}; drop it, or give model='additive'"
                )
        return
    _check_monotone(settings)
    if settings.ridge is not None and not 0 < settings.ridge < math.inf:
        raise InputError(
            f"ridge = {settings.ridge:g}; additive models need a small one; give 1e-6, or None"
        )


def _check_monotone(settings: TrainingSettings) -> None:
    monotone: object = settings.monotone
    if not monotone:
        return
    known = tuple(DIRECTIONS)
    if not isinstance(monotone, Mapping) or not all(own in known for own in monotone.values()):
        raise InputError(f"monotone = {monotone!r}; give columns with 'up' or 'down' each")
    if not isinstance(method_of(settings), LookAhead):
        raise InputError(
            f"monotone = {monotone!r} needs second derivatives, which {method_of(settings).name} "
            "does not use; give method=FedMinMaxFast(), AFLFast() or FedAvgFast(), or drop it"
        )


def kind_of(settings: TrainingSettings) -> str:
    """Return what is trained: "additive", "linear" or "mlp"."""
    widths, kind = checked_widths(settings.hidden), settings.model
    if kind is None:
        if widths:
            return NETWORK
        # Steps along gradients hardly move effects that are smoothed.
        return ADDITIVE if pace_of_settings(settings) is Pace.LOOK_AHEAD else LINEAR
    if kind not in KINDS:
        raise InputError(f"model = {kind!r}; give {', '.join(KINDS)}, or None")
    if bool(widths) != (kind == NETWORK):
        raise InputError(
            f"model = {kind!r} was given with hidden = {settings.hidden!r}; an mlp needs hidden "
            "layers such as (64, 64), other models have none"
        )
    return kind


def small_rule_of(settings: TrainingSettings) -> SmallGroupRule:
    """Return how small groups are treated."""
    known = [rule.value for rule in SmallGroupRule]
    if settings.small not in known:
        raise InputError(f"small = {settings.small!r}; give {', '.join(known)}")
    return SmallGroupRule(settings.small)


def method_of(settings: TrainingSettings) -> AnyMethod[Any]:
    """Return the method to train with."""
    if settings.method is not None:
        return settings.method
    if not _asks_for_algorithm_1(settings):
        optimality_gap = DEFAULT_GAP if settings.optimality_gap is None else settings.optimality_gap
        trade = _trade_of(settings)
        return FedMinMaxFast(
            settings.min_weight,
            keep_share=trade.get("keep_share", 0.0),
            tolerance=trade.get("tolerance", 0.0),
            linear_start=kind_of(settings) == NETWORK,
            optimality_gap=optimality_gap,
        )
    adversary = ADVERSARY_RATE if settings.adversary_rate is None else settings.adversary_rate
    # The average of all rounds is still biased towards the start.
    return FedMinMax(
        settings.learning_rate,
        adversary,
        min_weight=settings.min_weight,
        keep_share=settings.keep_share or 0.0,
        output=Iterate.TAIL_AVERAGE,
    )


def _trade_of(settings: TrainingSettings) -> dict[str, float]:
    """Return how the mean counts beside the worst risk: as given, else by default."""
    both = {"keep_share": settings.keep_share, "tolerance": settings.tolerance}
    given = {name: value for name, value in both.items() if value is not None}
    linear, pace = kind_of(settings) != NETWORK, pace_of_settings(settings)
    return given or default_trade((), pace, linear=linear)


def _asks_for_algorithm_1(settings: TrainingSettings) -> bool:
    return settings.learning_rate is not None or settings.adversary_rate is not None


def pace_of_settings(settings: TrainingSettings) -> Pace:
    """Return how much work a round of the method does, which decides some defaults."""
    if settings.method is not None:
        return pace_of(checked_method(settings.method))
    return Pace.ONE_STEP if _asks_for_algorithm_1(settings) else Pace.LOOK_AHEAD


def rounds_of(settings: TrainingSettings) -> int:
    """Return the maximum number of rounds."""
    if settings.rounds is not None:
        return settings.rounds
    return DEFAULT_ROUNDS[pace_of_settings(settings)]


def patience_of(settings: TrainingSettings, *, has_validation_rows: bool) -> int | None:
    """Return after how many rounds without improvement to stop; None is never.

    With very few rows there may be no validation rows, whatever the share.
    """
    if settings.patience is not None or not has_validation_rows:
        return settings.patience
    return default_patience(pace_of_settings(settings), validation_share(settings))


def loss_of(settings: TrainingSettings, loss: str | None) -> str:
    """Return the name of a classifier's loss; None is the default."""
    return loss or default_loss(pace_of_settings(settings), classifies=True)


def ridge_of(settings: TrainingSettings, loss: str) -> float:
    """Return the ridge penalty of a model that is trained with this loss."""
    if settings.ridge is not None:
        return settings.ridge
    kind, pace = kind_of(settings), pace_of_settings(settings)
    return default_ridge(pace, loss, linear=kind != NETWORK, additive=kind == ADDITIVE)


def validation_share(settings: TrainingSettings) -> float:
    """Return the share of rows to choose the round by: networks overfit, and need some."""
    if settings.validation is not None:
        return checked_share(settings.validation)
    return DEFAULT_SHARE_FOR_NETWORKS if kind_of(settings) == NETWORK else 0.0


def iterate_of(settings: TrainingSettings) -> Iterate | None:
    """Return the requested iterate; None is the method's own answer."""
    if settings.iterate is None:
        return None
    known = [which.value for which in Iterate]
    if settings.iterate not in known:
        raise InputError(f"iterate = {settings.iterate!r}; give {', '.join(known)}, or None")
    return Iterate(settings.iterate)
