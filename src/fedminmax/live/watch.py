"""Look at a run folder again and again while a run writes it, and afterwards.

Nothing is written. A run belongs to a process as long as that holds the run's lock; without a
process and without results it was interrupted. A watcher sees the rounds so far, the state, who
answered, the time left (``LiveRun``). Groups that are too small to be trained for are named, and
nothing else is known of them here: the risk of a few rows is mostly noise.
"""

import time
import tomllib
from collections.abc import Collection, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedminmax.core.errors import EXTRAS, InputError, install_command
from fedminmax.core.files import JsonLog, LogSoFar, is_held
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.records import PrivacyOfRun, Results
from fedminmax.runs.federation import NETWORK_FOLDER
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    LOCK_FILE,
    PLANNED_FILE,
    RECORD_FILE,
    RESULTS_FILE,
    PlannedFile,
    read_results,
)
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord

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
    """A run at one moment; ``message`` says what happens, ``title`` what is predicted.

    ``groups`` and all rounds are without the ``small_groups``; ``group_rows`` are their training
    rows, if known. ``threshold`` is the least number of
    sites in a total, if sums are masked; None if they are not, or if there is no network. Between
    sites ``privacy`` is the promise alone: how much was spent on a table its site knows.
    """

    place: str
    stage: Stage
    message: str
    _: KW_ONLY
    title: str = ""
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


# Between a method's run and its baseline's nobody holds either, for a moment.
SECONDS_UNTIL_INTERRUPTED = 5.0
# Where locks cannot be seen: a run whose log has not changed for this long is not running.
SECONDS_OF_SILENCE = 120.0
SEEDS = "seed-*"
RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True)
class FolderSoFar:
    """What was read of one model's folder: its log, and since when nobody holds its lock."""

    log: LogSoFar[RoundRecord]
    free_since: float | None = None


NOTHING_READ = FolderSoFar(LogSoFar())


def watch_folder(folder: Path, wait: float) -> Generator[LiveRun]:
    """Yield how the run in this folder is, at each call; the folder need not exist yet.

    ``wait`` is how long to wait for the server of a run over a network, in seconds.
    """
    tables = watch_tables(folder)
    yield LiveRun(str(folder), Stage.WAITING, "Looking for the run.")
    while True:
        if not is_over_network(folder):
            yield next(tables)
            continue
        try:
            # Only here: the engine takes a second to import.
            from fedminmax.live.watch_network import watch_federation_folder

            yield from watch_federation_folder(folder, wait)
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package not in EXTRAS:
                raise
            yield LiveRun(
                str(folder), Stage.WAITING, f"{package} is needed: {install_command(package)}."
            )
        except (InputError, OSError) as error:
            yield LiveRun(str(folder), Stage.WAITING, f"{error}.")


def is_over_network(folder: Path) -> bool:
    """Whether the folder's run is one over a network that has no results yet."""
    return (folder / NETWORK_FOLDER / RECORD_FILE).is_file() and not (
        folder / RESULTS_FILE
    ).is_file()


def watch_tables(folder: Path) -> Generator[LiveRun]:
    """Yield how the run in this folder is, at each call; the folder need not exist yet."""
    seen: dict[Path, FolderSoFar] = {}
    last = _waiting(folder, f"{folder} does not exist yet; waiting for a run to begin there.")
    while True:
        own = _latest_seed(folder)
        try:
            seen = {
                path: _read(path, seen.get(path, NOTHING_READ))
                for path in (own, own / BASELINE_FOLDER)
                if path.is_dir()
            }
            last = _live_run(own, seen)
        except (InputError, OSError) as error:
            # A file may be damaged, or may just have been replaced: look again.
            last = replace(last, notices=(str(error),))
        yield last


def _latest_seed(folder: Path) -> Path:
    """Return the folder of the seed that was trained last; the folder itself if it has no seeds."""
    logs = [path for path in folder.glob(f"{SEEDS}/**/{ROUNDS_FILE}") if path.is_file()]
    if not logs or (folder / CENSUS_FILE).exists():
        return folder
    latest = max(logs, key=lambda path: path.stat().st_mtime)
    return folder / latest.relative_to(folder).parts[0]


def _read(folder: Path, before: FolderSoFar) -> FolderSoFar:
    log = JsonLog(folder / ROUNDS_FILE, RoundRecord).read_more(before.log)
    if _is_running(folder):
        return FolderSoFar(log)
    return FolderSoFar(log, before.free_since or time.monotonic())


def _is_running(folder: Path) -> bool:
    is_locked = is_held(folder / LOCK_FILE)
    if is_locked is not None:
        return is_locked
    log = folder / ROUNDS_FILE
    return log.exists() and time.time() - log.stat().st_mtime < SECONDS_OF_SILENCE


def _live_run(folder: Path, seen: dict[Path, FolderSoFar]) -> LiveRun:
    census = _parse(folder / CENSUS_FILE, CensusFile)
    if folder not in seen:
        return _waiting(folder, f"{folder} does not exist yet; waiting for a run to begin there.")
    if census is None:
        return _waiting(
            folder,
            f"No run has begun in {folder}: its tables may still be read, or it was interrupted "
            "before its first round.",
        )
    planned = [_parse(path / PLANNED_FILE, PlannedFile) for path in seen]
    results = [read_results(path) for path in seen]
    models = [
        _model(path, own, plan, found, census)
        for (path, own), plan, found in zip(seen.items(), planned, results, strict=True)
    ]
    begun = planned[0] or results[0]
    stage, message = _stage(folder, models, list(seen.values()))
    return LiveRun(
        str(folder),
        stage,
        message,
        title=_title(folder),
        groups=tuple(name for name in census.groups if name not in census.small_groups),
        small_groups=census.small_groups,
        group_rows=tuple(
            sum(line[place] for line in census.train)
            for place, name in enumerate(census.groups)
            if name not in census.small_groups
        ),
        sites=census.sites,
        models=tuple(model for model in models if model.name),
        threshold=results[0].secure_aggregation if results[0] else None,
        privacy=begun.privacy if begun else None,
    )


def _title(folder: Path) -> str:
    """Say what is predicted, as the configuration does; "" if that is not known."""
    try:
        settings = tomllib.loads((folder / CONFIG_FILE).read_text("utf-8"))
        stated, target = settings.get("report", {}).get("title"), settings["data"]["target"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""
    return str(stated) if stated else f"Predicting “{target}”"


def _waiting(folder: Path, message: str) -> LiveRun:
    return LiveRun(str(folder), Stage.WAITING, message)


def _model(
    folder: Path,
    own: FolderSoFar,
    planned: PlannedFile | None,
    results: Results | None,
    census: CensusFile,
) -> LiveModel:
    rounds = own.log.records
    name = planned.name if planned else results.method.name if results else ""
    if rounds and not name:
        name = "the baseline" if folder.name == BASELINE_FOLDER else "the method"
    total = planned.rounds if planned else results.method.rounds if results else None
    # A run may go on after its results.
    is_finished = results is not None and (not rounds or rounds[-1].round <= results.method.rounds)
    stage = Stage.WAITING
    if own.free_since is None:
        stage = Stage.RUNNING
    elif is_finished:
        stage = Stage.FINISHED
    elif rounds or planned:
        stage = Stage.INTERRUPTED
    return LiveModel(
        name,
        without_groups(rounds, census.groups, census.small_groups),
        planned=results.method.rounds if results is not None and is_finished else total,
        stage=stage,
        may_stop_early=planned is not None and planned.may_stop_early,
        rounds_after=planned.rounds_after if planned else 0,
    )


def _stage(folder: Path, models: list[LiveModel], seen: list[FolderSoFar]) -> tuple[Stage, str]:
    running = next((model for model in models if model.stage is Stage.RUNNING), None)
    if running is not None:
        return Stage.RUNNING, _running_message(running)
    if all(model.stage is Stage.FINISHED for model in models):
        return Stage.FINISHED, f"Finished. Next: fedminmax report {folder}"
    left = next(model for model in models if model.stage is not Stage.FINISHED)
    since = max(own.free_since or 0.0 for own in seen)
    if time.monotonic() - since < SECONDS_UNTIL_INTERRUPTED:
        return Stage.RUNNING, "Looking for the process that trains here."
    where = f"after round {left.progress} of {left.name}" if left.rounds else "before a first round"
    return (
        Stage.INTERRUPTED,
        f"Interrupted {where}: run the same 'fedminmax train' command again to continue.",
    )


def _running_message(model: LiveModel) -> str:
    if not model.rounds:
        return f"{model.name or 'The run'} begins."
    if model.done == model.planned:
        return f"{model.name} has done its {model.done:,} rounds and is being measured."
    return f"{model.name} is being trained: round {model.progress}."


def _parse(path: Path, kind: type[RecordT]) -> RecordT | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise InputError(f"{path} is damaged; repeat the run to write it again") from error
