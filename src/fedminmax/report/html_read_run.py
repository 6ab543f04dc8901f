"""Read a run folder of `fedminmax train` for the report: complete, undamaged, of one piece."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.json_lines import read_lines
from fedminmax.report.html_run_checks import check_baseline, check_census, check_trained
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import CensusFile, Results, what_is_wrong
from fedminmax.report.table_results import finished_results

REPEAT = "finish or repeat the run with 'fedminmax train'"
KindT = TypeVar("KindT")


@dataclass(frozen=True)
class Trained:
    """One trained model of a folder: what it scored, and how it got there."""

    folder: Path
    results: Results
    rounds: tuple[RoundRecord, ...]


@dataclass(frozen=True)
class Run:
    """A run folder: a method, its baseline if there is one, and the rows they saw."""

    label: str
    chosen: Trained
    baseline: Trained | None
    census: CensusFile
    config: str


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
                "risks do not compare; write a report for each"
            )
    return _with_labels(runs)


def read_run(folder: Path) -> Run:
    """Read one run folder and the baseline in it."""
    chosen = _read_trained(folder)
    census = _parse(folder / "census.json", TypeAdapter(CensusFile), _read(folder / "census.json"))
    check_census(folder / "census.json", census, chosen.results.groups, REPEAT)
    check_trained(folder, chosen.results, chosen.rounds, REPEAT)
    baseline = None
    if (folder / "baseline").is_dir():
        baseline = _read_trained(folder / "baseline")
        check_trained(baseline.folder, baseline.results, baseline.rounds, REPEAT)
        check_baseline(baseline.folder, baseline.results, chosen.results, REPEAT)
    config = _read(folder / "config.toml")
    return Run(chosen.results.method.name, chosen, baseline, census, config)


def _read_trained(folder: Path) -> Trained:
    results = finished_results(folder)
    path = folder / "rounds.jsonl"
    _check_there(path)
    line_of = TypeAdapter(RoundRecord)
    lines = enumerate(read_lines(path, REPEAT), 1)
    rounds = [_parse(path, line_of, line, number) for number, line in lines]
    return Trained(folder, results, tuple(rounds))


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is missing; {REPEAT}")


def _read(path: Path) -> str:
    _check_there(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: it is not text; {REPEAT}") from error


def _parse(path: Path, kind: TypeAdapter[KindT], text: str, line: int | None = None) -> KindT:
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        where = "" if line is None else f" in line {line}"
        raise InputError(f"{path} is damaged{where} ({what_is_wrong(error)}); {REPEAT}") from error


def _with_labels(runs: list[Run]) -> list[Run]:
    """Name runs by their methods; where methods repeat, by their folders too."""
    names = [run.label for run in runs]
    return [
        run
        if names.count(run.label) == 1
        else replace(run, label=f"{run.label} ({run.chosen.folder})")
        for run in runs
    ]
