"""Messages about whether a run has converged."""

from collections.abc import Sequence

from fedminmax.core.convergence import BY_VALIDATION, TOLERANCE, WITHIN_GAP, Convergence
from fedminmax.core.text import counted

# Above this share of the risk, the estimate of what is left means no more than "far".
FAR = 0.5
# Smaller shares are shown as this: further digits carry no information.
MIN_SHOWN = 1e-6
MARK = "\N{DAGGER}"
STATIONARY = " Its loss is not convex in the parameters: another start may end lower."


def verdict(name: str, found: Convergence, option: str = "--rounds", *, convex: bool = True) -> str:
    """Describe whether the run converged; if not, say what to do, and with which option.

    Unless risks are ``convex`` in the parameters, a point that no step improves may not be optimal.
    """
    if found.reason == WITHIN_GAP and found.remaining is not None:
        left = found.remaining / (found.risk or 1.0)
        return (
            f"{name} has converged{'' if convex else ' to a stationary point'} after "
            f"{counted(found.rounds, 'round')}: further rounds would lower its {found.measure} in "
            f"training by at most about {_percent(max(left, MIN_SHOWN))}."
            f"{'' if convex else STATIONARY}"
        )
    if found.reason == BY_VALIDATION:
        return (
            f"{name} stopped after {counted(found.rounds, 'round')}: further rounds did not "
            "improve on validation rows."
        )
    if found.converged:
        return (
            f"{name} has converged: its {found.measure} in training is within "
            f"{_percent(TOLERANCE)} of its limit, as far as "
            f"{counted(found.rounds, 'round shows', 'rounds show')}."
        )
    needed = found.rounds_needed
    rounds = "many more rounds" if needed is None else f"about {counted(needed, 'round')}"
    return f"{name} has not converged {_why(found)}. It may need {rounds} ({option})."


def short_verdict(found: Convergence | None) -> str:
    """Return a short form for a table; None under a privacy guarantee, where noise hides it."""
    if found is None:
        return "unknown"
    if found.reason == BY_VALIDATION:
        return found.reason
    return "yes" if found.converged else f"no ({found.reason})"


def marked(name: str, *, converged: bool) -> str:
    """Return a name for a table, with a mark if its run has not converged."""
    return name if converged else f"{name} {MARK}"


def notes_on_convergence(converged: Sequence[bool]) -> list[str]:
    """Explain the mark; nothing if all converged."""
    if all(converged):
        return []
    note = (
        f"{MARK} has not converged: more rounds may change its training risk by more than "
        f"{_percent(TOLERANCE)}, so a difference may be due to rounds rather than methods."
    )
    return [note]


def no_gain_yet(*models: tuple[str, bool | None]) -> str:
    """Say why a difference between models is neither a gain nor a loss yet; "" if it may be one.

    A model is its method's name, and whether it has converged (None: unknown).

    >>> no_gain_yet(("FedMinMax", True), ("FedAvg", False))
    'neither a gain nor a loss yet, because FedAvg has not converged'
    """
    known = {False: "has not converged", None: "is not known to have converged"}
    reasons = [f"{name} {known[converged]}" for name, converged in models if not converged]
    return f"neither a gain nor a loss yet, because {' and '.join(reasons)}" if reasons else ""


def _why(found: Convergence) -> str:
    start = f"after {counted(found.rounds, 'round')}: its"
    if found.reason == "gap" and found.remaining is not None:
        left = found.remaining / (found.risk or 1.0)
        return f"{start} {found.measure} in training may be {_percent(left)} above the lowest"
    if found.risk is None or found.slope is None or found.remaining is None:
        return f"as far as is known: {counted(found.rounds, 'round is', 'rounds are')} too few"
    # A perfect fit has a risk of 0, which cannot be divided by.
    unit = found.risk or 1.0
    if found.reason == "weights":
        gap = _percent((found.weights_gap or 0.0) / unit)
        return f"{start} weights see a risk {gap} below the worst group's"
    left = found.remaining / unit
    distance = "far" if left > FAR else f"about {_percent(left)}"
    if found.reason == "swinging":
        return f"{start} {found.measure} in training swings by {distance}"
    if found.reason == "averaging":
        return f"{start} model is an average that favours early rounds, {distance} from its limit"
    pace = _percent(100 * abs(found.slope) / unit)
    verb = "falls" if found.reason == "falling" else "rises"
    return (
        f"{start} {found.measure} in training still {verb}, by {pace} in 100 rounds, and may be "
        f"{distance} from its limit"
    )


def _percent(share: float) -> str:
    """Format a share with two digits.

    >>> _percent(0.1234), _percent(0.001), _percent(0.00012)
    ('12 %', '0.1 %', '0.012 %')
    """
    return f"{100 * share:.2g} %"
