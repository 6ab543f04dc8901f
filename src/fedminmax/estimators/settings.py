"""The settings that classifier and regressor share, as one record of constructor parameters.

scikit-learn reads parameters off the constructor and expects them to be kept as they came: that is
what a dataclass does. What they mean is checked in ``fit``, as its conventions ask.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.models import checked_widths
from fedminmax.core.small_groups import MINIMUM_GROUP, SmallGroupRule
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS, checked_share
from fedminmax.methods.checks import check_whole, checked_method
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod

# Settings of the default method; a method that is given has its own.
OF_THE_DEFAULT_METHOD = ("learning_rate", "adversary_rate", "epsilon")


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingSettings:
    """How a model is trained.

    Args:
        method: any method of fedminmax, such as ``AFL()``; None is ``FedMinMax`` with the next
            three settings.
        learning_rate: step size of the model; None takes one over the largest curvature that
            any weighting of the groups can give a linear model (a network: at most 0.1).
        adversary_rate: step size of the groups' weights; 0 ignores the groups.
        epsilon: the least weight of a group.
        minimum_group: groups with fewer rows are small.
        small: what becomes of small groups: "share" trains each with its share of the rows and
            not for it as the worst group, "merge" makes one group of them, "play" treats them
            like any other.
        hidden: widths of hidden ReLU layers; none is a linear (logistic) model.
        ridge: m of the penalty m/2 |theta|^2 on all of a linear model's parameters, intercepts
            included; risks are reported without it. 0 is none; a network has none.
        rounds: number of rounds; with FedMinMax each is one gradient step over all rows.
        iterate: which model to return, "average", "last", "tail_average" or "best", the one that
            validation rows choose. None is the best one if there are validation rows, else what
            the method's paper returns; for the default method the tail average, because the
            average of all rounds still leans towards the start.
        validation: share of each holder's rows, stratified by group and class, that choose the
            round and are not trained on; None is 0.1 for a network and 0 for a linear model.
        patience: stop after so many rounds in a row that are no better on validation rows; None
            is never.
        standardize: bring features (and a regressor's target) to mean 0 and deviation 1 first.
        random_state: start of a network, and whatever a method draws; a linear model starts at 0.
        device: where to train, such as "cpu" or "cuda"; prediction is on the CPU.
    """

    method: AnyMethod[Any] | None = None
    learning_rate: float | None = None
    adversary_rate: float = 0.1
    epsilon: float = 0.0
    minimum_group: int = MINIMUM_GROUP
    small: str = "share"
    hidden: tuple[int, ...] = ()
    ridge: float = 0.0
    rounds: int = 500
    iterate: str | None = None
    validation: float | None = None
    patience: int | None = None
    standardize: bool = True
    random_state: Any = None
    device: str = "cpu"


def check_settings(settings: TrainingSettings) -> None:
    """Refuse settings that cannot work, or that would be ignored."""
    check_whole("rounds", least=1, rounds=settings.rounds)
    check_whole("minimum_group", least=0, minimum_group=settings.minimum_group)
    checked_widths(settings.hidden)
    which = iterate_of(settings)
    share = validation_share(settings)
    if settings.patience is not None:
        check_whole("patience", least=1, patience=settings.patience)
    for name, asked in (("iterate", which is Iterate.BEST), ("patience", settings.patience)):
        if asked and share == 0.0:
            raise InputError(
                f"{name} = {getattr(settings, name)!r} needs validation rows; set validation=0.1"
            )
    small_rule_of(settings)
    if not isinstance(settings.standardize, (bool, np.bool_)):
        raise InputError(f"standardize = {settings.standardize!r}; give True or False")
    if settings.method is None:
        return
    checked_method(settings.method)
    defaults = {field.name: field.default for field in fields(settings)}
    for name in OF_THE_DEFAULT_METHOD:
        if getattr(settings, name) != defaults[name]:
            raise InputError(
                f"{name} = {getattr(settings, name)} came with a method of its own settings; "
                f"give it to {settings.method.name}"
            )


def small_rule_of(settings: TrainingSettings) -> SmallGroupRule:
    """Return what becomes of small groups."""
    known = [rule.value for rule in SmallGroupRule]
    if settings.small not in known:
        raise InputError(f"small = {settings.small!r}; give {', '.join(known)}")
    return SmallGroupRule(settings.small)


def method_of(settings: TrainingSettings, safe_rate: float) -> AnyMethod[Any]:
    """Return the method to train with; ``safe_rate`` is for a learning rate that was left open."""
    if settings.method is not None:
        return settings.method
    rate = safe_rate if settings.learning_rate is None else settings.learning_rate
    return FedMinMax(rate, settings.adversary_rate, settings.epsilon, output=Iterate.TAIL_AVERAGE)


def validation_share(settings: TrainingSettings) -> float:
    """Return the share of rows to choose the round by: networks overfit, and need some."""
    if settings.validation is not None:
        return checked_share(settings.validation)
    return DEFAULT_SHARE_FOR_NETWORKS if checked_widths(settings.hidden) else 0.0


def iterate_of(settings: TrainingSettings) -> Iterate | None:
    """Return the iterate that was asked for; None is the method's own answer."""
    if settings.iterate is None:
        return None
    known = [which.value for which in Iterate]
    if settings.iterate not in known:
        raise InputError(f"iterate = {settings.iterate!r}; give {', '.join(known)}, or None")
    return Iterate(settings.iterate)
