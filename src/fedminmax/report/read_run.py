"""Read a run folder of `fedminmax train` for the report, and check it.

The folder must be complete and undamaged, and its files must fit together.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedminmax.config.messages import validated
from fedminmax.config.sections import ReportSection
from fedminmax.core.errors import InputError
from fedminmax.core.files import read_lines
from fedminmax.data.tables.census import MAX_COUNT, CensusFile, first_error
from fedminmax.exports.effects import ModelEffects, effects_of
from fedminmax.exports.saved_model import MODEL_FILE, load_model
from fedminmax.findings.findings import Findings, findings
from fedminmax.findings.frontier import FrontierFile
from fedminmax.findings.records import MAX_NUMBER, RISK, Results
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    RESULTS_FILE,
    finished_results,
)
from fedminmax.runs.frontier import has_frontier, read_frontier
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord

REPEAT = "finish or repeat the run with 'fedminmax train'"
KindT = TypeVar("KindT")


def check_census(path: Path, census: CensusFile, groups: Sequence[str]) -> None:
    """Refuse a census of other groups, or without a count for each site and group."""
    if tuple(census.groups) != tuple(groups):
        raise InputError(f"{path} names other groups than results.json; {REPEAT}")
    others = tuple(census.other_tests.values())
    for part, table, sites in (
        ("train", census.train, len(census.sites)),
        ("test", census.test, len(census.sites)),
        ("other_tests", others, len(others)),
    ):
        if len(table) != sites or any(len(line) != len(groups) for line in table):
            raise InputError(
                f"{path} is damaged: '{part}' is not {sites} sites x {len(groups)} groups; {REPEAT}"
            )


def check_trained(folder: Path, results: Results, rounds: Sequence[RoundRecord]) -> None:
    """Refuse results without a risk of each group, and rounds of other groups."""
    path = folder / RESULTS_FILE
    groups = len(results.groups)
    if RISK not in results.test.metrics or not any(
        group.value is not None for group in results.risk.by_group
    ):
        raise InputError(f"{path} has no test risk; train with held-out records or test files")
    if results.is_audit:
        return
    path = folder / ROUNDS_FILE
    if not rounds:
        raise InputError(f"{path} has no rounds; {REPEAT}")
    for number, line in enumerate(rounds, 1):
        if len(line.risks) != groups:
            raise InputError(
                f"{path} is damaged in line {number}: {len(line.risks)} risks for {groups} groups; "
                f"{REPEAT}"
            )
        if not (0 < line.round <= MAX_COUNT and all(map(_is_usable, _numbers(line)))):
            raise InputError(
                f"{path} is damaged in line {number}: a number in it is out of range; {REPEAT}"
            )


def _numbers(line: RoundRecord) -> list[float]:
    known = [risk for risk in line.risks if risk is not None]
    return [line.seconds, *known, *line.weights]


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= MAX_NUMBER


def check_baseline(folder: Path, baseline: Results, chosen: Results) -> None:
    """Refuse a baseline that the run is not compared with, or of other groups or rows."""
    change, method = chosen.change, baseline.method
    compared = change and (change.baseline.key, change.baseline.rounds)
    if compared != (method.key, method.rounds):
        raise InputError(
            f"{folder.parent / RESULTS_FILE} is not compared with its baseline; {REPEAT}"
        )
    rows = [group.rows for group in baseline.risk.by_group]
    if (
        baseline.groups != chosen.groups
        or baseline.task != chosen.task
        or rows != [group.rows for group in chosen.risk.by_group]
    ):
        raise InputError(
            f"{folder / RESULTS_FILE} was measured on other groups or test records than the run; "
            f"{REPEAT}"
        )


@dataclass(frozen=True)
class Trained:
    """One trained model of a folder: its results and its rounds."""

    folder: Path
    results: Results
    rounds: tuple[RoundRecord, ...]


@dataclass(frozen=True)
class Run:
    """A run folder: a method, its baseline if there is one, and the census of their rows.

    ``effects`` are those of an additive model; ``frontier`` are the models around this one, if
    the run found them.
    """

    label: str
    chosen: Trained
    baseline: Trained | None
    census: CensusFile
    config: str
    effects: ModelEffects | None = None
    frontier: FrontierFile | None = None

    @cached_property
    def findings(self) -> Findings:
        """What the run found, in words."""
        return findings(self.chosen.results, self.baseline.results if self.baseline else None)

    @property
    def trained_rows(self) -> tuple[int, ...]:
        """Training records by group."""
        return tuple(map(sum, zip(*self.census.train, strict=True)))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The configuration, which training has checked; {} if it was damaged since."""
        try:
            return tomllib.loads(self.config)
        except tomllib.TOMLDecodeError:
            return {}

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the configuration; {} if there is none."""
        values = self.settings.get(name)
        return values if isinstance(values, Mapping) else {}

    @property
    def stated(self) -> ReportSection:
        """What the user states of the model and its use."""
        try:
            return validated(dict(self.section("report")), ReportSection)
        except InputError:
            return ReportSection()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The sensitive attributes, if the configuration names them."""
        columns = self.section("groups").get("columns")
        return tuple(map(str, columns)) if isinstance(columns, list) else ()


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders that one report can show side by side."""
    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(f"{folder} is given twice; give each run once")
        seen[folder.resolve()] = folder
    runs = [read_run(folder) for folder in folders]
    for run in runs[1:]:
        first, task = runs[0].chosen, run.chosen.results.task
        if task != first.results.task:
            raise InputError(
                f"{run.chosen.folder} is a {task} and {first.folder} a {first.results.task}, whose "
                "risks cannot be compared; write a report for each"
            )
    return _with_labels(runs)


def read_run(folder: Path) -> Run:
    """Read one run folder and the baseline in it."""
    chosen = _read_trained(folder)
    census = _parse(folder / CENSUS_FILE, TypeAdapter(CensusFile), _read(folder / CENSUS_FILE))
    check_census(folder / CENSUS_FILE, census, chosen.results.groups)
    check_trained(folder, chosen.results, chosen.rounds)
    baseline = None
    if (folder / BASELINE_FOLDER).is_dir():
        baseline = _read_trained(folder / BASELINE_FOLDER)
        check_trained(baseline.folder, baseline.results, baseline.rounds)
        check_baseline(baseline.folder, baseline.results, chosen.results)
    config = _read(folder / CONFIG_FILE)
    return Run(
        chosen.results.method.name,
        chosen,
        baseline,
        census,
        config,
        _effects(folder),
        read_frontier(folder) if has_frontier(folder) else None,
    )


def _effects(folder: Path) -> ModelEffects | None:
    """Read the effects of an additive model; None of other models."""
    if not (folder / MODEL_FILE).is_file():
        return None
    saved = load_model(folder)
    return effects_of(saved.model, saved.encoding)


def _read_trained(folder: Path) -> Trained:
    results = finished_results(folder)
    if results.is_audit:
        return Trained(folder, results, ())
    path = folder / ROUNDS_FILE
    _check_exists(path)
    line_of = TypeAdapter(RoundRecord)
    lines = enumerate(read_lines(path, REPEAT), 1)
    rounds = [_parse(path, line_of, line, number) for number, line in lines]
    return Trained(folder, results, tuple(rounds))


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is missing; {REPEAT}")


def _read(path: Path) -> str:
    _check_exists(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: it is not text; {REPEAT}") from error


def _parse(path: Path, kind: TypeAdapter[KindT], text: str, line: int | None = None) -> KindT:
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        where = "" if line is None else f" in line {line}"
        raise InputError(f"{path} is damaged{where} ({first_error(error)}); {REPEAT}") from error


def _with_labels(runs: list[Run]) -> list[Run]:
    """Label runs by their methods; if a method repeats, also by folders; then by numbers."""
    labels = [run.label for run in runs]
    for ways in ([run.chosen.folder.name for run in runs], range(1, len(runs) + 1)):
        repeated = {label for label in labels if labels.count(label) > 1}
        labels = [
            f"{label} ({way})" if label in repeated else label
            for label, way in zip(labels, ways, strict=True)
        ]
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]
