"""The sections of model_card.md with figures by group: test rows, baseline, personal models."""

from fedminmax.report.markdown import markdown_cell, markdown_table
from fedminmax.report.run_folder_records import ChangeOfRun, Measured, Results
from fedminmax.report.table_metrics import interval_words, metric_cells


def scores_section(results: Results) -> str:
    """Show every metric by group."""
    test = results.test
    if not test.rows:
        return "## Test results\n\nThere were no test rows: nothing is known about new rows."
    worst = results.risk.worst_group or ""
    return (
        f"## Test results\n\nOn {test.rows:,} rows that training did not see. In parentheses: "
        f"{_intervals(test)}. A star marks the worst group of a column; in risk it is "
        f"{markdown_cell(worst)}. The gap is between the highest and the lowest group.\n\n"
        f"{_table(results, test)}"
    )


def change_section(results: Results) -> str:
    """Show the change in risk from the baseline by group; nothing without a baseline."""
    section = results.change
    if section is None:
        return ""
    change, risk = section.risk, results.risk
    estimates = [*change.by_group, change.overall, change.worst]
    names = [*map(markdown_cell, results.groups), "all", "worst group to worst group"]
    rows = [*(f"{own.rows:,}" for own in change.by_group), f"{results.test.rows:,}", ""]
    lines = [
        [name, count, interval_words(own, like=risk.overall)]
        for name, count, own in zip(names, rows, estimates, strict=True)
    ]
    baseline = section.baseline
    return (
        f"## Change against the baseline\n\nRisk of this model minus the risk of the baseline "
        f"({baseline.name}, {baseline.rounds:,} rounds, in the folder `baseline`) on the "
        f"same rows: below 0 is a gain. In parentheses: {_intervals(section)} of the differences "
        f"row by row; one that leaves out 0 is more than the noise of these test rows.\n\n"
        f"{markdown_table(['group', 'rows', 'change in risk'], lines)}"
    )


def personal_section(results: Results) -> str:
    """Show the same metrics of the holders' own models; nothing where there are none."""
    own = results.personal
    if own is None or not own.rows:
        return ""
    return (
        "## Personal models\n\nEach holder also keeps a model of its own, which is not in this "
        f"folder. Measured on its own holder's test rows, {own.rows:,} in all; intervals and "
        f"stars as above.\n\n{_table(results, own)}"
    )


def _table(results: Results, test: Measured) -> str:
    headers, lines = metric_cells(results.groups, test)
    return markdown_table(headers, [[markdown_cell(line[0]), *line[1:]] for line in lines])


def _intervals(made: Measured | ChangeOfRun) -> str:
    return f"{100 * made.confidence:g} % bootstrap intervals ({made.resamples:,} resamples)"
