"""Whether a run has converged, in a sentence, in a word for a table, and as a mark.

These words need no records of a run's folder, and so neither pydantic nor polars.
"""

from collections.abc import Sequence

from fedminmax.core.convergence import BY_VALIDATION, TOLERANCE, WITHIN_GAP, Convergence
from fedminmax.core.text import counted, percent

# Above this share of the risk, the estimate of what is left means no more than "far".
FAR = 0.5
# Smaller shares are shown as this: further digits carry no information.
MIN_SHOWN = 1e-6
MARK = "\N{DAGGER}"
STATIONARY = " Its loss is not convex in the parameters, so another start may end lower."


def convergence_text(
    name: str, state: Convergence, option: str = "--rounds", *, convex: bool = True
) -> str:
    """Say whether the run converged; if not, say what to do, and with which option.

    Unless risks are ``convex`` in the parameters, a point that no step improves may not be optimal.
    """
    rounds = counted(state.rounds, "round")
    if state.reason == WITHIN_GAP and state.remaining is not None:
        left = percent(max(state.remaining / (state.risk or 1.0), MIN_SHOWN))
        where = "" if convex else " to a stationary point"
        return (
            f"{name} has converged{where} after {rounds}: more rounds would lower its "
            f"{state.measure} in training by at most about {left}.{'' if convex else STATIONARY}"
        )
    if state.reason == BY_VALIDATION:
        return f"{name} stopped after {rounds}: more rounds did not improve on validation records."
    if state.converged:
        return (
            f"{name} has converged: its {state.measure} in training is within "
            f"{percent(TOLERANCE)} of its limit, as far as "
            f"{counted(state.rounds, 'round shows', 'rounds show')}."
        )
    needed = state.rounds_needed
    more = "many more rounds" if needed is None else f"about {counted(needed, 'round')}"
    return f"{name} has not converged {_why(state)}. It may need {more} ({option})."


def _why(state: Convergence) -> str:
    start = f"after {counted(state.rounds, 'round')}: its"
    if state.reason == "gap" and state.remaining is not None:
        above = percent(state.remaining / (state.risk or 1.0))
        return f"{start} {state.measure} in training may be {above} above the lowest"
    if state.risk is None or state.slope is None or state.remaining is None:
        return f"as far as is known: {counted(state.rounds, 'round is', 'rounds are')} too few"
    # A perfect fit has a risk of 0, which cannot be divided by.
    unit = state.risk or 1.0
    if state.reason == "weights":
        gap = percent((state.weights_gap or 0.0) / unit)
        return f"{start} weights see a risk {gap} below the worst group's"
    left = state.remaining / unit
    distance = "far" if left > FAR else f"about {percent(left)}"
    if state.reason == "swinging":
        return f"{start} {state.measure} in training swings by {distance}"
    if state.reason == "averaging":
        return f"{start} model is an average that favours early rounds, {distance} from its limit"
    pace = percent(100 * abs(state.slope) / unit)
    verb = "falls" if state.reason == "falling" else "rises"
    return (
        f"{start} {state.measure} in training still {verb}, by {pace} in 100 rounds, and may be "
        f"{distance} from its limit"
    )


def short_convergence(state: Convergence | None) -> str:
    """Return a short form for a table; None under a privacy guarantee, where noise hides it."""
    if state is None:
        return "unknown"
    if state.reason == BY_VALIDATION:
        return state.reason
    return "yes" if state.converged else f"no ({state.reason})"


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
