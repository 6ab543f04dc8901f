"""The runs of a configuration: the method, and a baseline that differs only in its objective.

Where neither the configuration nor the method has a learning rate, the run takes the largest one
that is safe for these features, as ``train`` does in Python. It is known only when all sites have
encoded their rows: until then its word is "safe". The baseline takes the same learning rate, steps,
rounds and iterate, or the same server that looks ahead, so that what differs is what it minimises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from fedminmax.config.sections import MethodSection
from fedminmax.core.bounds import MAX_NETWORK_RATE
from fedminmax.core.iterates import Iterate
from fedminmax.methods.card import DEFAULT_ROUNDS, MethodCard, Pace
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod

RATE = "learning_rate"
SAFE = "safe"
BASELINE_OPTIONS = (RATE, "epochs", "batch_size")


@dataclass(frozen=True)
class PlannedRun:
    """A method's key, its options as text for its card, and the length of the run.

    ``iterate`` is which of the run's models it returns; None is the method's own choice.
    ``patience`` is after how many rounds without improvement on validation rows the run stops; with
    ``needs_patience`` the user asked for it, so a run without such rows is a mistake.
    """

    method: str
    options: Mapping[str, str]
    rounds: int
    _: KW_ONLY
    participation: float = 1.0
    iterate: Iterate | None = None
    patience: int | None = None
    needs_patience: bool = False

    def build(self) -> AnyMethod[Any]:
        """Build the method; a learning rate that its options leave open is that of networks."""
        method = CARDS[self.method].build({}, self.options)
        if method.learning_rate is not None:
            return method
        return replace(method, learning_rate=MAX_NETWORK_RATE)  # type: ignore[type-var]


def planned_runs(choice: MethodSection) -> tuple[PlannedRun, ...]:
    """Return the method's run, and the baseline's unless there is none or it is the same."""
    card = CARDS[choice.name]
    options = dict(choice.options)
    if RATE not in options and _leaves_rate_open(card):
        options[RATE] = SAFE
    run = PlannedRun(
        choice.name,
        options,
        choice.rounds,
        participation=choice.participation,
        iterate=choice.iterate,
        patience=choice.patience,
    )
    # The first point of a frontier is the plain model.
    if choice.baseline in (None, choice.name) or choice.finds_frontier:
        return (run,)
    return run, _baseline(run, card, CARDS[choice.baseline])


def needs_learning_rate(runs: Sequence[PlannedRun]) -> bool:
    """Return whether one of the runs waits for a safe learning rate."""
    return any(run.options.get(RATE) == SAFE for run in runs)


def with_rate(runs: Sequence[PlannedRun], rate: str) -> tuple[PlannedRun, ...]:
    """Give this learning rate to the runs that wait for one."""
    return tuple(
        replace(run, options=dict(run.options) | {RATE: rate})
        if needs_learning_rate([run])
        else run
        for run in runs
    )


def _leaves_rate_open(card: MethodCard) -> bool:
    """Return whether the method has no learning rate of its own, in Python as everywhere else."""
    return RATE in card.option_types and card.build({}).learning_rate is None


def _baseline(run: PlannedRun, card: MethodCard, baseline: MethodCard) -> PlannedRun:
    looks_ahead = (card.pace is Pace.LOOK_AHEAD, baseline.pace is Pace.LOOK_AHEAD)
    if all(looks_ahead):
        shared = dict(run.options)
    elif any(looks_ahead):
        # Rates, epochs and rounds of one do not apply to the other.
        shared = {RATE: SAFE} if _leaves_rate_open(baseline) else {}
        run = replace(run, rounds=DEFAULT_ROUNDS[baseline.pace])
    else:
        run, shared = _with_same_steps(run, card, baseline)
    options = {name: word for name, word in shared.items() if name in baseline.option_types}
    return replace(run, method=baseline.key, options=options)


def _with_same_steps(
    run: PlannedRun, card: MethodCard, baseline: MethodCard
) -> tuple[PlannedRun, dict[str, str]]:
    """Return the run with rounds for the same number of steps, and their settings."""
    # Any number: it stands where the safe one will.
    method = with_rate([run], "1")[0].build()
    shared = {
        name: "none" if (value := getattr(method, name)) is None else repr(value)
        for name in BASELINE_OPTIONS
        if name in card.option_types
    }
    if needs_learning_rate([run]):
        shared[RATE] = SAFE
    if card.pace is Pace.ONE_STEP:
        return run, shared | {"epochs": "1", "batch_size": "none"}
    if baseline.pace is Pace.ONE_STEP:
        run = replace(run, rounds=run.rounds * int(shared.get("epochs", "1")))
    return run, shared
