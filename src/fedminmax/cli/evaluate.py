"""`fedminmax evaluate`: metrics by group on held-out rows, or on the user's files."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command, add_format_options, format_changes
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.findings.records import Measured, Results


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "evaluate",
        evaluate,
        short="metrics by group of a trained model",
        text="Show a trained model's metrics by group with their intervals: on the rows held out "
        "from training, or on your own files with target and sensitive attributes.",
        example="evaluate runs/fedminmax new_north.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("files", type=Path, nargs="*", metavar="FILE", help="rows to measure on instead")
    add("--json", action="store_true", help="print only machine-readable metrics on stdout")
    add_format_options(parser, "as the configuration of the run says")


def evaluate(options: argparse.Namespace) -> None:
    """Print the metrics of a finished run."""
    from fedminmax.cli.messages import say
    from fedminmax.findings.records import record_as_json
    from fedminmax.runs.finish import measure_files
    from fedminmax.runs.folder import finished_results

    folder, files = options.folder, options.files
    results = finished_results(folder)
    if files:
        measured = measure_files(folder, files, format_changes(options))
        for warning in measured.warnings:
            say(f"warning: {warning}")
        test, skipped = measured.test, dict(measured.skipped)
        rows = ", ".join(map(str, files))
    else:
        test, skipped, rows = results.test, {}, "held-out records"
    if not test.rows:
        raise InputError(f"{folder} has no held-out records; give files to measure on")
    if options.json:
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
    results: "Results", test: "Measured", title: str, skipped: Mapping[str, int]
) -> None:
    """Print every metric by group, and what to know before reading it."""
    from fedminmax.cli.terminal import print_table, wide_console
    from fedminmax.core.text import counted
    from fedminmax.findings.tables import metrics_table, parity_table
    from fedminmax.findings.training import convergence_of
    from fedminmax.findings.verdict import small_groups_text

    console = wide_console()
    table = metrics_table(results, test, title)
    print_table(console, table.caption, table.headers, table.lines)
    if any(metric.worst_group is not None for metric in test.metrics.values()):
        console.print("A star marks the worst group.")
    between = parity_table(results, test, sites=test is results.test)
    if between is not None:
        print_table(console, between.caption, between.headers, between.lines)
    if not results.converged:
        console.print(convergence_of(results))
    small = small_groups_text(results.groups, test)
    if small:
        console.print(small)
    if skipped:
        records, groups = counted(sum(skipped.values()), "record"), counted(len(skipped), "group")
        console.print(f"Not in the table: {records} of {groups} without training records.")
