"""Do the files of a run folder fit together?"""

import math
from collections.abc import Sequence
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import MAX_COUNT, MAX_NUMBER, RISK, CensusFile, Results


def check_census(path: Path, census: CensusFile, groups: Sequence[str], remedy: str) -> None:
    """Refuse a census of other groups, or without a count for each holder and group."""
    if tuple(census.groups) != tuple(groups):
        raise InputError(f"{path} names other groups than results.json; {remedy}")
    others = tuple(census.other_tests.values())
    for part, table, holders in (
        ("train", census.train, len(census.holders)),
        ("test", census.test, len(census.holders)),
        ("other_tests", others, len(others)),
    ):
        if len(table) != holders or any(len(line) != len(groups) for line in table):
            raise InputError(
                f"{path} is damaged: '{part}' is not {holders} holders x {len(groups)} groups; "
                f"{remedy}"
            )


def check_trained(
    folder: Path, results: Results, rounds: Sequence[RoundRecord], remedy: str
) -> None:
    """Refuse results without a risk of each group, and rounds of other groups."""
    path = folder / "results.json"
    groups = len(results.groups)
    if RISK not in results.test.metrics or not any(
        group.value is not None for group in results.risk.by_group
    ):
        raise InputError(f"{path} has no test risk; train with held-out rows or test files")
    path = folder / "rounds.jsonl"
    if not rounds:
        raise InputError(f"{path} has no rounds; {remedy}")
    for number, line in enumerate(rounds, 1):
        if len(line.risks) != groups:
            raise InputError(
                f"{path} is damaged in line {number}: {len(line.risks)} risks for {groups} groups; "
                f"{remedy}"
            )
        if not (0 < line.round <= MAX_COUNT and all(map(_is_usable, _numbers(line)))):
            raise InputError(
                f"{path} is damaged in line {number}: a number in it is out of range; {remedy}"
            )


def _numbers(line: RoundRecord) -> list[float]:
    known = [risk for risk in line.risks if risk is not None]
    return [line.seconds, *known, *line.weights]


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= MAX_NUMBER


def check_baseline(folder: Path, baseline: Results, chosen: Results, remedy: str) -> None:
    """Refuse a baseline that was measured on other groups or rows."""
    rows = [group.rows for group in baseline.risk.by_group]
    if (
        baseline.groups != chosen.groups
        or baseline.task != chosen.task
        or rows != [group.rows for group in chosen.risk.by_group]
    ):
        raise InputError(
            f"{folder / 'results.json'} was measured on other groups or test rows than the run; "
            f"{remedy}"
        )
