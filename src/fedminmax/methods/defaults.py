"""What is trained where a user leaves it open: the method, its baseline, rounds, loss and ridge.

The default method is FedMinMaxFast. What else is left open depends on how much the chosen method
does in a round. Those that look ahead stop by themselves, are compared with the plain model by the
same server, and train linear models with a loss and a ridge for which sums prove how low the worst
group's risk can be (see ``core.certificate``). All other methods have what they always had, so that
a configuration that names one of them keeps its numbers.
"""

from fedminmax.methods.card import Pace

DEFAULT_METHOD = "fedminmax-fast"
# The most rounds of a run; methods that look ahead stop before if nothing is left to gain.
DEFAULT_ROUNDS = {Pace.LOOK_AHEAD: 200, Pace.ONE_STEP: 500, Pace.LOCAL_EPOCHS: 500}
# Rounds in a row that are no better on validation rows. Networks overfit within some ten rounds of
# these methods, so that the best one has come long before.
PATIENCE = 30
# Small enough to cost the worst group nothing, and enough for a proof of how good a model can be.
# Squared errors need less of it, so that a line through points without noise is found as it is.
RIDGES = {"cross_entropy": 1e-4, "brier": 1e-4, "squared_error": 1e-6}


def default_baseline(pace: Pace) -> str:
    """Return the key of the plain model that a method of this pace is compared with."""
    return "fedavg-fast" if pace is Pace.LOOK_AHEAD else "fedavg"


def default_patience(pace: Pace, validation: float) -> int | None:
    """Return after how many rounds without a gain to stop; None is never.

    >>> default_patience(Pace.LOOK_AHEAD, 0.1), default_patience(Pace.ONE_STEP, 0.1)
    (30, None)
    """
    return PATIENCE if validation and pace is Pace.LOOK_AHEAD else None


def default_loss(pace: Pace, *, classifies: bool, linear: bool) -> str:
    """Return the name of the loss to train with.

    >>> default_loss(Pace.LOOK_AHEAD, classifies=True, linear=True)
    'cross_entropy'
    """
    if not classifies:
        return "squared_error"
    return "cross_entropy" if linear and pace is Pace.LOOK_AHEAD else "brier"


def default_ridge(pace: Pace, loss: str, *, linear: bool) -> float:
    """Return m of the penalty m/2 |theta|^2; networks have none.

    >>> default_ridge(Pace.LOOK_AHEAD, "brier", linear=True)
    0.0001
    """
    return RIDGES[loss] if linear and pace is Pace.LOOK_AHEAD else 0.0
