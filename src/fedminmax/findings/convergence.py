"""Whether a run has converged, in a sentence, in a word for a table, and as a mark."""

from collections.abc import Sequence

from fedminmax.core.convergence import BY_VALIDATION, TOLERANCE, WITHIN_GAP, Convergence
from fedminmax.core.linear_structure import CONVEX_LOSSES
from fedminmax.core.text import counted
from fedminmax.findings.records import Results
from fedminmax.findings.text import percent

# Above this share of the risk, the estimate of what is left means no more than "far".
FAR = 0.5
# Smaller shares are shown as this: further digits carry no information.
MIN_SHOWN = 1e-6
MARK = "\N{DAGGER}"
STATIONARY = " Its loss is not convex in the parameters, so another start may end lower."


def verdict_of(results: Results) -> str:
    """Say whether a run on tables converged; if not, say what to do."""
    if results.convergence is None:
        return (
            f"Noise hides whether {results.method.name} has converged. The privacy guarantee fixed "
            f"its {counted(results.method.rounds, 'round')} beforehand; with more rounds, each has "
            "more noise."
        )
    convex = results.loss in CONVEX_LOSSES and not results.model.hidden
    return verdict(results.method.name, results.convergence, convex=convex)


def verdict(name: str, found: Convergence, option: str = "--rounds", *, convex: bool = True) -> str:
    """Say whether the run converged; if not, say what to do, and with which option.

    Unless risks are ``convex`` in the parameters, a point that no step improves may not be optimal.
    """
    rounds = counted(found.rounds, "round")
    if found.reason == WITHIN_GAP and found.remaining is not None:
        left = percent(max(found.remaining / (found.risk or 1.0), MIN_SHOWN))
        where = "" if convex else " to a stationary point"
        return (
            f"{name} has converged{where} after {rounds}: more rounds would lower its "
            f"{found.measure} in training by at most about {left}.{'' if convex else STATIONARY}"
        )
    if found.reason == BY_VALIDATION:
        return f"{name} stopped after {rounds}: more rounds did not improve on validation records."
    if found.converged:
        return (
            f"{name} has converged: its {found.measure} in training is within "
            f"{percent(TOLERANCE)} of its limit, as far as "
            f"{counted(found.rounds, 'round shows', 'rounds show')}."
        )
    needed = found.rounds_needed
    more = "many more rounds" if needed is None else f"about {counted(needed, 'round')}"
    return f"{name} has not converged {_why(found)}. It may need {more} ({option})."


def _why(found: Convergence) -> str:
    start = f"after {counted(found.rounds, 'round')}: its"
    if found.reason == "gap" and found.remaining is not None:
        above = percent(found.remaining / (found.risk or 1.0))
        return f"{start} {found.measure} in training may be {above} above the lowest"
    if found.risk is None or found.slope is None or found.remaining is None:
        return f"as far as is known: {counted(found.rounds, 'round is', 'rounds are')} too few"
    # A perfect fit has a risk of 0, which cannot be divided by.
    unit = found.risk or 1.0
    if found.reason == "weights":
        gap = percent((found.weights_gap or 0.0) / unit)
        return f"{start} weights see a risk {gap} below the worst group's"
    left = found.remaining / unit
    distance = "far" if left > FAR else f"about {percent(left)}"
    if found.reason == "swinging":
        return f"{start} {found.measure} in training swings by {distance}"
    if found.reason == "averaging":
        return f"{start} model is an average that favours early rounds, {distance} from its limit"
    pace = percent(100 * abs(found.slope) / unit)
    verb = "falls" if found.reason == "falling" else "rises"
    return (
        f"{start} {found.measure} in training still {verb}, by {pace} in 100 rounds, and may be "
        f"{distance} from its limit"
    )


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
        f"{percent(TOLERANCE)}, so a difference may be due to rounds rather than methods."
    )
    return [note]


def no_gain_yet(*models: tuple[str, bool | None]) -> str:
    """Say why a difference between models is neither a gain nor a loss yet; "" if it may be one.

    A model is its method's name, and whether it has converged (None: unknown).

    >>> no_gain_yet(("FedMinMax", True), ("FedAvg", False))
    'neither a gain nor a loss yet, because FedAvg has not converged'
    """
    states = {False: "has not converged", None: "is not known to have converged"}
    reasons = [f"{name} {states[converged]}" for name, converged in models if not converged]
    return f"neither a gain nor a loss yet, because {' and '.join(reasons)}" if reasons else ""
