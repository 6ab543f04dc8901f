"""A comparison of methods on one data set: its runs, and how they are brought to their end.

A method that fails leaves its reason and loses nothing of the others.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.messages import Reveals
from fedminmax.data.partition import Setting
from fedminmax.federation.train import check_shown, start_of
from fedminmax.methods.card import MethodCard
from fedminmax.report.failures import forget_failure, note_failure
from fedminmax.studies.finish import Tick, finish_runs, is_finished, run_folder
from fedminmax.studies.study import (
    CENTRALIZED,
    Length,
    RunPlan,
    Study,
    StudyMethod,
    cost_of,
    validation_share,
)

# What a method's own arithmetic can raise: everything but a full disk or an interruption.
FAILURES = (DivergedError, InputError, RuntimeError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class Entry:
    """One method of a comparison, under the words that chose it.

    ``only_in`` is the one setting that the method is run in; empty, it is all that are asked for.
    """

    label: str
    card: MethodCard
    method: StudyMethod
    only_in: str = ""


def parse_entry(words: str, cards: Mapping[str, MethodCard], common: Mapping[str, object]) -> Entry:
    """Make an entry from words such as ``qfedavg:q=5:epochs=3`` or ``fedminmax@centralized``."""
    label, at, only_in = words.partition("@")
    known = [*(setting.value for setting in Setting), CENTRALIZED]
    if at and only_in not in known:
        raise InputError(f"setting '{only_in}' in '{words}' is unknown; give {', '.join(known)}")
    key, *settings = label.split(":")
    if key not in cards:
        raise InputError(
            f"method '{key}' is unknown; choose from {', '.join(cards)} (see 'fedminmax methods')"
        )
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InputError(f"'{words}' was given; write options as {key}:name=value")
    own = {name: value for name, _, value in pairs}
    return Entry(label, cards[key], cards[key].build(common, own), only_in)


def plan_comparison(
    entries: Sequence[Entry],
    settings: Sequence[str],
    seeds: Sequence[int],
    length: Length,
    rows: int,
    *,
    network: bool,
) -> list[RunPlan]:
    """List the runs: one whole table per seed."""
    lines = lines_of_table(entries, settings)
    return [
        RunPlan(
            setting,
            entry.method,
            seed,
            length.of(entry.method),
            cost_of(entry.method, length, rows),
            label=entry.label,
            validation=validation_share(entry.method, network=network),
        )
        for seed in seeds
        for setting, entry in lines
    ]


def lines_of_table(entries: Sequence[Entry], settings: Sequence[str]) -> list[tuple[str, Entry]]:
    """Return (setting, entry) line by line, each once; settings of single entries come last."""
    every = dict.fromkeys([*settings, *(entry.only_in for entry in entries if entry.only_in)])
    lines = {
        (setting, entry.label): (setting, entry)
        for setting in every
        for entry in entries
        if (setting == entry.only_in if entry.only_in else setting in settings)
    }
    return list(lines.values())


def check_comparison(study: Study, plans: Sequence[RunPlan], shown: Reveals) -> dict[str, str]:
    """Bring every kind of run to its start; return why a method cannot do what is asked."""
    reasons: dict[str, str] = {}
    first = [plan for plan in plans if plan.fold == plans[0].fold]
    for rows in dict.fromkeys((plan.setting, plan.validation) for plan in first):
        alike = [plan for plan in first if (plan.setting, plan.validation) == rows]
        federation = study.federation(alike[0])
        for plan in alike:
            try:
                check_shown(plan.method, shown)
                start_of(federation, plan.method)
            except InputError as error:
                reasons.setdefault(plan.title, str(error))
    return reasons


def finish_comparison(
    study: Study, plans: Sequence[RunPlan], folder: Path, seconds: float
) -> Iterator[Tick]:
    """Finish what is not finished yet; note a run that fails, and go on with the others."""
    deadline = time.monotonic() + seconds
    for number, plan in enumerate(plans):
        own = run_folder(folder, plan)
        try:
            for tick in finish_runs(study, [plan], folder, deadline - time.monotonic()):
                yield Tick(number, tick.round, tick.complaint)
        except FAILURES as error:
            note_failure(own, plan.setting, plan.title, plan.fold, error)
            yield Tick(number, plan.rounds, f"{plan.setting} {plan.title} failed: {error}")
        if is_finished(plan, own):
            forget_failure(own)
        if time.monotonic() > deadline:
            return
