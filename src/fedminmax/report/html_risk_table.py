"""Risk by group in numbers, beside the baseline and with the change from it."""

from fedminmax.report.html_changes import ALL_ROWS, Change, all_changes
from fedminmax.report.html_figure import Table
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_words import (
    NOTHING,
    decimals_of,
    estimate,
    interval_name,
    number,
    risk_name,
    span,
)
from fedminmax.report.run_folder_records import Results


def risk_table(run: Run) -> Table:
    """Show each group and all rows; beside a baseline, what changed and how sure that is."""
    results = run.chosen.results
    decimals, interval = decimals_of(results), interval_name(results)
    risks = [*results.risk.by_group, results.risk.overall]
    rows = [*(group.rows for group in results.risk.by_group), results.test.rows]
    headers = ["Group", "Test rows", f"{run.label} ({interval})"]
    cells = [
        [name, f"{count:,}", estimate(risk, decimals)]
        for name, count, risk in zip([*results.groups, ALL_ROWS], rows, risks, strict=True)
    ]
    if run.baseline is not None:
        baseline = run.baseline.results
        headers += [f"{baseline.method.name} ({interval})", "Change (its interval)", "Beyond noise"]
        before = [*baseline.risk.by_group, baseline.risk.overall]
        for line, risk, change in zip(cells, before, all_changes(run), strict=True):
            line += [estimate(risk, decimals), *_change_cells(change, decimals)]
    return Table(
        f"{risk_name(results)} by group, lower is better",
        tuple(headers),
        tuple(tuple(cells[number]) for number in _groups_of_few_rows_last(results)),
    )


def _groups_of_few_rows_last(results: Results) -> list[int]:
    """Order the lines: groups of enough rows, all rows, groups of few rows."""
    groups = results.risk.by_group
    everyone = len(groups)
    enough = [number for number, own in enumerate(groups) if own.has_enough_rows]
    return [*enough, everyone, *(number for number in range(everyone) if number not in enough)]


def _change_cells(change: Change | None, decimals: int) -> list[str]:
    if change is None:
        return [NOTHING, NOTHING]
    interval = span(change.low, change.high, decimals)
    verdict = "yes" if change.is_sure else "no"
    if not change.has_enough_rows:
        verdict = "too few rows to say"
    return [f"{number(change.value, decimals)} ({interval})", verdict]
