"""What a method changed against its baseline: both measured on the same test rows, row by row.

It is added to the method's results when both are finished. A call that ends before that leaves
nothing behind, and the next one adds it.
"""

from collections.abc import Sequence

from fedminmax.report.change_results import change_from, with_change
from fedminmax.report.model_card import write_card
from fedminmax.report.model_file import load_model
from fedminmax.report.model_scores import paired_sums, score_rows
from fedminmax.report.table_results import finished_results, write_results
from fedminmax.studies.run_folder import claim_run
from fedminmax.studies.table_federation import census_of
from fedminmax.studies.table_runs import TableRun
from fedminmax.studies.train_table import TableJob


def add_change(job: TableJob, runs: Sequence[TableRun]) -> None:
    """Add the change to the results and the card of the first run, if the second is a baseline."""
    parts = [part.examples for part in job.tables.test]
    if len(runs) == 1 or not any(len(part) for part in parts):
        return
    chosen, baseline = runs
    with claim_run(chosen.folder) as ours:
        results, before = (finished_results(run.folder) for run in runs)
        # Whoever else holds the run is training it further, and will add a later change.
        if not ours or change_from(results, before) is not None:
            return
        saved = load_model(chosen.folder)
        own, other = (
            score_rows([(model, part) for part in parts])
            for model in (saved, load_model(baseline.folder))
        )
        results = with_change(results, paired_sums(own, other, len(saved.groups)), before)
        census, words = census_of(job.tables), job.config.report
        write_card(chosen.folder, saved, results, census, chosen.card, words)
        write_results(chosen.folder, results)
