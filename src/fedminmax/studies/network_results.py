"""What is said of runs over a network: the results of each, and who held how many rows."""

from pathlib import Path
from typing import Any

from fedminmax.data.tables.sizes import size_warnings
from fedminmax.federation.agreement import Agreed
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.report.change_results import CHANGE, change_content
from fedminmax.report.metrics_from_sums import DrawnSums
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_metrics import measured_content
from fedminmax.report.table_results import TrainingFacts, results_content
from fedminmax.studies.fetched_runs import FinishedRun
from fedminmax.studies.network_remarks import remarks_on, sites_content
from fedminmax.studies.network_tests import MeasuredTests


def census_content(plan: NetworkPlan, agreed: Agreed, tests: MeasuredTests) -> dict[str, Any]:
    """Return the rows of each group, by site and by owner of a test file."""
    return {
        "format": 1,
        "holders": list(plan.sites),
        "groups": list(agreed.encoding.group_names),
        "train": agreed.rows(plan.sites).tolist(),
        "test": tests.by_site.tolist(),
        "other_tests": tests.of_files,
    }


def results_contents(
    runs: list[FinishedRun],
    plan: NetworkPlan,
    fetched: Path,
    tests: MeasuredTests,
    census: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return each run's results, the method's with its change against the baseline."""
    drawn = DrawnSums(tests.metrics, tests.sums, plan.seed)
    results = []
    for number, run in enumerate(runs):
        test = {"rows": 0, "metrics": {}}
        if drawn.rows:
            test = measured_content(drawn.metrics(number), run.saved.groups)
        said = remarks_on(run.rounds, plan, fetched, run.saved.groups)
        said["warnings"] += _sizes(run.saved, census, tests)
        content = results_content(run.saved, _facts(run, plan), test, said)
        results.append(content | {"sites": sites_content(run.rounds, plan)})
    if len(runs) > 1 and drawn.rows:
        results[0][CHANGE] = change_content(drawn.risk(0), drawn.risk(1), results[1])
    return results


def _sizes(saved: SavedModel, census: dict[str, Any], tests: MeasuredTests) -> list[str]:
    """Warn of groups whose risk is mostly noise."""
    groups = saved.encoding.groups
    train = [sum(column) for column in zip(*census["train"], strict=True)]
    test = tests.sums.counts.tolist()
    return size_warnings(
        saved.encoding,
        dict(zip(groups, train, strict=True)),
        dict(zip(groups, test, strict=True)) if any(test) else {},
    )


def _facts(run: FinishedRun, plan: NetworkPlan) -> TrainingFacts:
    return TrainingFacts(
        run.table_run.card.key,
        run.table_run.method.name,
        run.table_run.options,
        run.rounds[-1].round,
        run.table_run.participation,
        plan.seed,
        round(sum(entry.seconds for entry in run.rounds), 3),
        run.rounds[-1].gradient_evaluations,
    )
