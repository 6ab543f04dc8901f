"""Defaults of what is trained: the method, its baseline, rounds, loss and ridge.

The default method is FedMinMaxFast. The other defaults depend on how much work the chosen method
does in a round. Methods that look ahead stop by themselves, are compared with a plain model trained
by the same server, and train additive and linear models with a loss and a ridge for which sums
prove how low the worst group's risk can be (see ``core.certificate``).
"""

from collections.abc import Container

from fedminmax.methods.card import KEEP_SHARE_FOR_NETWORKS, Pace

DEFAULT_METHOD = "fedminmax-fast"
# Maximum rounds of a run; methods that look ahead stop earlier if nothing is left to gain.
DEFAULT_ROUNDS = {Pace.LOOK_AHEAD: 200, Pace.ONE_STEP: 500, Pace.LOCAL_EPOCHS: 500}
# Under a privacy guarantee every round costs noise in all others; chosen on Adult.
PRIVATE_ROUNDS = {Pace.LOOK_AHEAD: 20, Pace.ONE_STEP: 300, Pace.LOCAL_EPOCHS: 20}
# Rounds in a row without improvement on validation rows. Networks overfit within some ten rounds of
# these methods, so the best round is long past by then.
PATIENCE = 30
# By how much of the lowest possible risk the worst group's may be above it, so that the mean is
# lower. Exact minimax (0) is no better for the worst group on test records, and worse for everybody
# else; a quarter of the worst risk's standard error is about as good and needs one sum more
# (experiments/table_models/near_minimax.py).
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
