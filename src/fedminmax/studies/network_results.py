"""What is said of runs over a network: the results of each, and who held how many rows."""

from dataclasses import replace
from pathlib import Path

from fedminmax.data.tables.groups import GroupKey
from fedminmax.data.tables.sizes import size_warnings, small_group_remarks
from fedminmax.federation.agreement import Agreed
from fedminmax.federation.network_plan import NetworkPlan, task_of
from fedminmax.report.certificate_words import with_proof
from fedminmax.report.change_results import with_change
from fedminmax.report.metrics_from_sums import metrics_from_sums, paired_sums_of
from fedminmax.report.run_folder_records import (
    FORMAT,
    NOT_MEASURED,
    CensusFile,
    MergedOfRun,
    Results,
)
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_metrics import measured
from fedminmax.report.table_results import Remarks, TrainingFacts, results_of, today
from fedminmax.studies.after_run import add_advice
from fedminmax.studies.fetched_runs import FinishedRun
from fedminmax.studies.network_remarks import remarks_on, sites_of
from fedminmax.studies.network_tests import MeasuredTests


def census_of_sites(plan: NetworkPlan, agreed: Agreed, tests: MeasuredTests) -> CensusFile:
    """Return the rows of each group, by site and by owner of a test file."""
    return CensusFile(
        format=FORMAT,
        holders=plan.sites,
        groups=agreed.encoding.group_names,
        small_groups=agreed.encoding.small_group_names,
        train=tuple(map(tuple, agreed.rows(plan.sites).tolist())),
        test=tuple(map(tuple, tests.by_site.tolist())),
        validation=tuple(map(tuple, agreed.validation_rows(plan.sites).tolist())),
        other_tests=tests.of_files,
    )


def results_of_runs(
    runs: list[FinishedRun],
    plan: NetworkPlan,
    fetched: Path,
    tests: MeasuredTests,
    census: CensusFile,
) -> list[Results]:
    """Return each run's results, the method's with its change against the baseline."""
    has_rows = bool(tests.sums.counts.any())
    results = []
    for number, run in enumerate(runs):
        test = NOT_MEASURED
        if has_rows:
            small = run.saved.small_group_numbers
            found = metrics_from_sums(tests.metrics, tests.sums, number, small)
            test = measured(found, run.saved.groups, small)
        remarks = remarks_on(run.rounds, plan, fetched, run.saved.groups)
        train = _train_rows(run.saved, census)
        sizes = _sizes(run.saved, train, tests)
        unproved = [run.proof.reason] if run.proof and run.proof.reason else []
        remarks = Remarks(
            (*remarks.notes, *small_group_remarks(run.saved.encoding, train)),
            (*remarks.warnings, *unproved, *sizes),
        )
        encoding, records = run.saved.encoding, run.records(census.holders)
        last, proof = records[-1], run.proof
        if proof is not None and proof.certificate is not None:
            last = replace(last, certificate=proof.certificate.in_units(run.unit))
        own = with_proof(results_of(run.saved, _facts(run, plan, census), test, remarks), last)
        further: dict[str, object] = {"sites": sites_of(run.rounds, plan)}
        if run.validation is not None:
            further["validation"] = run.validation
        merged = _merged(run.saved, tests, number)
        if merged is not None:
            further["merged"] = merged
        own = own.model_copy(update=further)
        task = task_of(plan, encoding)
        own = add_advice(
            own,
            run.table_run,
            task,
            encoding,
            census,
            records,
            run.rounds,
            compress=plan.compress,
        )
        results.append(own)
    if len(runs) > 1 and has_rows:
        pairs = paired_sums_of(tests.metrics, tests.sums)
        results[0] = with_change(results[0], pairs, results[1])
    return results


def _merged(saved: SavedModel, tests: MeasuredTests, number: int) -> MergedOfRun | None:
    """Return what a model scored on each of the groups that were merged into one."""
    names = saved.encoding.merged_group_names
    if not names:
        return None
    test = NOT_MEASURED
    if bool(tests.merged.counts.any()):
        everyone = range(len(names))
        found = metrics_from_sums(tests.metrics, tests.merged, number, everyone)
        test = measured(found, names, everyone)
    return MergedOfRun(groups=names, test=test)


def _train_rows(saved: SavedModel, census: CensusFile) -> dict[GroupKey, int]:
    rows = [sum(column) for column in zip(*census.train, strict=True)]
    return dict(zip(saved.encoding.groups, rows, strict=True))


def _sizes(saved: SavedModel, train: dict[GroupKey, int], tests: MeasuredTests) -> list[str]:
    """Warn of groups whose risk is mostly noise."""
    test = tests.sums.counts.tolist()
    tested = dict(zip(saved.encoding.groups, test, strict=True)) if any(test) else {}
    return size_warnings(saved.encoding, train, tested)


def _facts(run: FinishedRun, plan: NetworkPlan, census: CensusFile) -> TrainingFacts:
    last = run.rounds[-1]
    seconds = round(sum(entry.seconds for entry in run.rounds), 3)
    method = run.table_run.trained_for(last.round)
    records = run.records(census.holders)
    convergence = run.table_run.judge(records, census, run.saved.iterate, run.validation)
    return TrainingFacts(
        method, plan.seed, seconds, last.gradient_evaluations, convergence, today()
    )
