"""`fedminmax evaluate`: metrics by group on held-out rows, or on the user's files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedminmax.cli.terminal import print_table, say, wide_console
from fedminmax.config.file_format import FormatChanges
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted
from fedminmax.findings.records import Measured, Results, record_as_json
from fedminmax.runs.measure import measure_files, metric_cells, small_groups_text
from fedminmax.runs.remarks import verdict_of
from fedminmax.runs.results import finished_results


def evaluate(folder: Path, files: Sequence[Path], changes: FormatChanges, *, as_json: bool) -> None:
    """Print the metrics of a finished run."""
    results = finished_results(folder)
    if files:
        found = measure_files(folder, files, changes)
        for warning in found.warnings:
            say(f"warning: {warning}")
        test, skipped = found.test, dict(found.skipped)
        rows = ", ".join(map(str, files))
    else:
        test, skipped, rows = results.test, {}, "held-out rows"
    if not test.rows:
        raise InputError(f"{folder} has no held-out rows; give files to measure on")
    if as_json:
        content = {
            "run": str(folder),
            "groups": results.groups,
            "positive_class": results.classes[1] if len(results.classes) == 2 else None,
            "converged": results.converged,
            "test": record_as_json(test),
            "skipped": skipped,
        }
        print(json.dumps(content))
        return
    print_evaluated(results, test, f"{results.method.name} on {rows}", skipped)


def print_evaluated(
    results: Results, test: Measured, title: str, skipped: Mapping[str, int]
) -> None:
    """Print every metric by group, and what to know before reading it."""
    console = wide_console()
    print_table(console, title, *metric_cells(results, test))
    intervals = f"{100 * test.confidence:g} % intervals"
    starred = any(metric.worst_group is not None for metric in test.metrics.values())
    stars = " A star marks the worst group." if starred else ""
    console.print(f"In parentheses: {intervals}.{stars}")
    if not results.converged:
        console.print(verdict_of(results))
    small = small_groups_text(results.groups, test)
    if small:
        console.print(small)
    if skipped:
        rows, groups = counted(sum(skipped.values()), "row"), counted(len(skipped), "group")
        console.print(f"Not in the table: {rows} of {groups} without training rows.")
