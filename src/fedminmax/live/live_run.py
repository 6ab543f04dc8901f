"""What a watcher sees of a run: its rounds so far, its state, who answered, the time left.

Groups that are too small to be trained for are named, and nothing else is known of them here: the
risk of a few rows is mostly noise.
"""

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum

from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.findings.records import PrivacyOfRun
from fedminmax.training.round_record import RoundRecord

# The pace is that of the last rounds: the first ones may be slower.
ROUNDS_OF_PACE = 20
# Risks that differ by less than this share are the same but for rounding.
TIE = 1e-6


class Stage(Enum):
    """How far a run, or one of its models, is."""

    WAITING = "not started"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


@dataclass(frozen=True)
class LiveModel:
    """A method's rounds so far, and how many there will be; None if that is unknown.

    ``rounds_after`` are those of the baseline that is trained next.
    """

    name: str
    rounds: tuple[RoundRecord, ...]
    _: KW_ONLY
    planned: int | None
    stage: Stage
    may_stop_early: bool = False
    rounds_after: int = 0

    @property
    def done(self) -> int:
        """The number of the last round; 0 before the first."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def progress(self) -> str:
        """The last round, of how many."""
        return f"{self.done:,}" + (f" of {self.planned:,}" if self.planned else "")

    @property
    def seconds_left(self) -> float | None:
        """How long all remaining rounds take at the pace of the last ones; None if unknown."""
        if self.planned is None or not self.rounds or self.stage is not Stage.RUNNING:
            return None
        last = self.rounds[-ROUNDS_OF_PACE:]
        before = self.rounds[-len(last) - 1].seconds if len(last) < len(self.rounds) else 0.0
        left = max(0, self.planned - self.done) + self.rounds_after
        return max(0.0, last[-1].seconds - before) / len(last) * left


@dataclass(frozen=True)
class LiveSite:
    """A site: in how many of the rounds seen it took part, and why not in the last one."""

    name: str
    rounds: int
    _: KW_ONLY
    answered: bool
    reason: str | None = None


@dataclass(frozen=True)
class LiveRun:
    """A run at one moment; ``message`` says in a sentence what happens.

    ``groups`` and all rounds are without the ``small_groups``; ``group_rows`` are their training
    rows, if known. ``threshold`` is the least number of
    sites in a total, if sums are masked; None if they are not, or if there is no network. Between
    sites ``privacy`` is the promise alone: how much was spent on a table its site knows.
    """

    place: str
    stage: Stage
    message: str
    _: KW_ONLY
    groups: tuple[str, ...] = ()
    small_groups: tuple[str, ...] = ()
    group_rows: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    models: tuple[LiveModel, ...] = ()
    site_progress: tuple[LiveSite, ...] = ()
    threshold: int | None = None
    privacy: Privacy | PrivacyOfRun | None = None
    notices: tuple[str, ...] = ()

    @property
    def current(self) -> LiveModel | None:
        """The model that is being trained, or the last one that was."""
        begun = [model for model in self.models if model.rounds]
        running = [model for model in self.models if model.stage is Stage.RUNNING]
        return running[-1] if running else begun[-1] if begun else None


def worst_now(model: LiveModel, groups: Sequence[str]) -> tuple[str | None, float] | None:
    """Return the highest risk in the last round and whose it is; None if no risk is known.

    An untrained model has the same risk for all groups: if two share the highest, nobody is named.
    """
    if not model.rounds:
        return None
    risks = zip(groups, model.rounds[-1].risks, strict=True)
    known = sorted(((risk, name) for name, risk in risks if risk is not None), reverse=True)
    if not known:
        return None
    highest, name = known[0]
    tied = len(known) > 1 and known[1][0] >= highest * (1.0 - TIE)
    return None if tied else name, highest


def without_groups(
    rounds: Sequence[RoundRecord], groups: Sequence[str], hidden: Collection[str]
) -> tuple[RoundRecord, ...]:
    """Return rounds without the risks and weights of the hidden groups."""
    if not hidden:
        return tuple(rounds)
    kept = [place for place, name in enumerate(groups) if name not in hidden]
    return tuple(
        replace(
            record,
            risks=tuple(record.risks[place] for place in kept),
            validation_risks=tuple(record.validation_risks[place] for place in kept)
            if record.validation_risks
            else (),
            weights=tuple(record.weights[place] for place in kept)
            if record.weights_over == "groups" and len(record.weights) == len(groups)
            else record.weights,
        )
        for record in rounds
    )
