"""Do the files of a run folder fit together?"""

from collections.abc import Sequence
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import RISK, CensusFile, Results


def check_census(path: Path, census: CensusFile, groups: Sequence[str], remedy: str) -> None:
    """Refuse a census of other groups, or without a count for each holder and group."""
    if tuple(census.groups) != tuple(groups):
        raise InputError(f"{path} names other groups than results.json; {remedy}")
    for part, table in (("train", census.train), ("test", census.test)):
        if len(table) != len(census.holders) or any(len(line) != len(groups) for line in table):
            raise InputError(
                f"{path} is damaged: '{part}' is not {len(census.holders)} holders x "
                f"{len(groups)} groups; {remedy}"
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
    personal = results.personal.metrics if results.personal else {}
    for name, metric in (*results.test.metrics.items(), *personal.items()):
        if len(metric.by_group) != groups:
            raise InputError(
                f"{path} is damaged: {name} has {len(metric.by_group)} values for {groups} groups; "
                f"{remedy}"
            )
    if results.change and any(len(m.by_group) != groups for m in results.change.metrics.values()):
        raise InputError(f"{path} is damaged: its change is not of {groups} groups; {remedy}")
    path = folder / "rounds.jsonl"
    if not rounds:
        raise InputError(f"{path} has no rounds; {remedy}")
    for number, line in enumerate(rounds, 1):
        if len(line.risks) != groups:
            raise InputError(
                f"{path} is damaged in line {number}: {len(line.risks)} risks for {groups} groups; "
                f"{remedy}"
            )


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
