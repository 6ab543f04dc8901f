"""What `fedminmax train` prints at its end: test risk by group, ours and the baseline's."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedminmax.cli.tables import print_table, wide_console
from fedminmax.report.advice_of_run import after_words
from fedminmax.report.certificate_words import certificate_words
from fedminmax.report.change_results import change_from
from fedminmax.report.convergence_words import no_gain_yet, verdict
from fedminmax.report.run_folder_records import RISK, Results
from fedminmax.report.table_metrics import (
    interval_words,
    merged_words,
    metric_cells,
    small_groups_words,
)
from fedminmax.report.validation_words import validation_words

TOO_FEW = "too few rows to say"


def print_trained(folder: Path, results: Sequence[Results]) -> None:
    """Print the table of a finished run and its baseline, and where everything is."""
    console = wide_console()
    if results[0].test.rows:
        _print_risks(console, results)
        _print_personal(console, results[0])
    for own in results:
        _say(console, verdict(own.method.name, own.convergence))
        proved = certificate_words(own)
        if proved:
            _say(console, proved)
        if own.validation is not None:
            _say(console, f"{own.method.name}: {validation_words(own)}")
    for words in after_words(results[0]):
        _say(console, words)
    for what, name in (
        ("Results", "results.json"),
        ("Card", "model_card.md"),
        ("Model", "model.safetensors"),
    ):
        _say(console, f"{what}: {folder / name}")
    _say(console, f"Next: fedminmax evaluate {folder}")


def _print_risks(console: Console, results: Sequence[Results]) -> None:
    tests = [result.test for result in results]
    metrics = [result.risk for result in results]
    names = [result.method.name for result in results]
    counts = [f"{own.rows:,}" for own in metrics[0].by_group]
    columns = {
        "group": [*results[0].groups, "all"],
        "rows": [*counts, f"{tests[0].rows:,}"],
    }
    for name, metric in zip(names, metrics, strict=True):
        columns[name] = [interval_words(own) for own in (*metric.by_group, metric.overall)]
    change = change_from(*results) if len(results) == 2 else None
    if change is not None:
        columns["change"] = [
            *(
                interval_words(own, like=metrics[0].overall) if own.has_enough_rows else TOO_FEW
                for own in change.by_group
            ),
            interval_words(change.overall, like=metrics[0].overall),
        ]
    title = f"Test risk by group ({100 * tests[0].confidence:g} % intervals)"
    lines = list(zip(*columns.values(), strict=True))
    print_table(console, title, list(columns), lines)
    if change is not None:
        doubt = no_gain_yet(*((own.method.name, own.converged) for own in results))
        _say(
            console,
            f"Change: {names[0]} minus {names[1]} on the same rows; "
            f"{doubt or 'below 0 is a gain'}.",
        )
    for name, metric in zip(names, metrics, strict=True):
        if metric.worst_group is not None:
            _say(console, f"Worst off with {name}: {metric.worst_group}")
    small = small_groups_words(results[0].groups, tests[0])
    for words in (small, merged_words(results[0])):
        if words:
            _say(console, words)


def _print_personal(console: Console, results: Results) -> None:
    """Print what holders' own models scored, if the method has them and they have test rows."""
    own = results.personal
    if own is None or not own.rows:
        return
    title = "Personal models, each on its own holder's test rows"
    print_table(console, title, *metric_cells(results.groups, own, [RISK]))


def _say(console: Console, words: str) -> None:
    console.print(words, markup=False, highlight=False)
