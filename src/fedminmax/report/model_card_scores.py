"""The sections of model_card.md with figures by group: test rows, baseline, personal models."""

from fedminmax.core.counted import counted
from fedminmax.report.convergence_words import no_gain_yet
from fedminmax.report.markdown import markdown_table, markdown_text
from fedminmax.report.mean_interval import MIN_ROWS
from fedminmax.report.run_folder_records import ChangeOfRun, Measured, Results
from fedminmax.report.table_metrics import (
    interval_words,
    merged_words,
    metric_cells,
    small_groups_words,
)


def scores_section(results: Results) -> str:
    """Show every metric by group."""
    test = results.test
    if not test.rows:
        return "## Test results\n\nThere were no test rows: nothing is known about new rows."
    worst = results.risk.worst_group
    named = "" if worst is None else f"; in risk it is {markdown_text(worst)}"
    return (
        f"## Test results\n\nOn {counted(test.rows, 'row')} that training did not see. In "
        f"parentheses: {_intervals(test)}. A star marks the worst group of a column{named}. The "
        "gap is between the highest and the lowest group. Groups with fewer than "
        f"{MIN_ROWS} test rows, or too few training rows, are neither: they come "
        f"last.\n\n{_table(results, test)}"
        f"{_small_groups(results)}{_merged_groups(results)}"
    )


def change_section(results: Results) -> str:
    """Show the change in risk from the baseline by group; nothing without a baseline."""
    section = results.change
    if section is None:
        return ""
    change, risk = section.risk, results.risk
    lines = [
        [name, f"{own.rows:,}", interval_words(own, like=risk.overall)]
        for name, own in zip(results.groups, change.by_group, strict=True)
        if own.has_enough_rows
    ]
    everyone = ("all", f"{results.test.rows:,}", change.overall)
    for name, count, own in (everyone, ("worst group to worst group", "", change.worst)):
        lines.append([name, count, interval_words(own, like=risk.overall)])
    baseline = section.baseline
    doubt = no_gain_yet(
        (results.method.name, results.converged), (baseline.name, baseline.converged)
    )
    return (
        f"## Change against the baseline\n\nRisk of this model minus the risk of the baseline "
        f"({baseline.name}, {counted(baseline.rounds, 'round')}, in the folder `baseline`) on the "
        f"same rows: {doubt or 'below 0 is a gain'}. In parentheses: "
        f"{_intervals(section)} of the differences row by row; one that leaves out 0 is more "
        "than the noise of these test rows.\n\n"
        f"{markdown_table(['group', 'rows', 'change in risk'], lines)}{_small_groups(results)}"
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
    return markdown_table(*metric_cells(results.groups, test))


def _small_groups(results: Results) -> str:
    words = small_groups_words(list(map(markdown_text, results.groups)), results.test)
    return f"\n\n{words}" if words else ""


def _merged_groups(results: Results) -> str:
    words = merged_words(results)
    return f"\n\n{markdown_text(words)}" if words else ""


def _intervals(made: Measured | ChangeOfRun) -> str:
    return f"{100 * made.confidence:g} % intervals"
