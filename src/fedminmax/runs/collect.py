"""Write the run folder of a run over a network: the same files as for a run in one process.

`rounds.jsonl` also has, for each round, which sites took part, which did not and why, with times
and bytes. The census has the rows of each site. The results also warn about sites that were missing
and groups that the run did not see.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedminmax.config.read import TableConfig
from fedminmax.config.sections import ReportSection
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_copy, write_json
from fedminmax.core.text import counted
from fedminmax.data.tables.census import FORMAT, CensusFile
from fedminmax.data.tables.groups import GroupKey
from fedminmax.data.tables.load import size_warnings, small_group_remarks
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, save_model
from fedminmax.findings.privacy import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.findings.records import NOT_MEASURED, MergedOfRun, Results, SiteOfRun, record_as_json
from fedminmax.metrics.sums import metrics_from_sums, paired_sums_of
from fedminmax.network.server.agreement import AGREEMENT_FILE, Agreed, read_agreement
from fedminmax.network.server.run import read_outcome
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.runs.assemble import add_advice
from fedminmax.runs.fetched import FinishedRun, MeasuredTests, finished_runs, measured_tests
from fedminmax.runs.layout import CENSUS_FILE
from fedminmax.runs.measure import measured, with_change
from fedminmax.runs.privacy import privacy_of_network_run
from fedminmax.runs.remarks import with_proof
from fedminmax.runs.results import (
    Remarks,
    TrainingFacts,
    results_of,
    today,
    write_card,
    write_results,
)
from fedminmax.training.checkpoint import checkpoint_paths
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord

# Warn if one of three or more sites has more than this share of all rows.
LARGE_SHARE = 0.9


def remarks_on(
    rounds: Sequence[RoundRecord], plan: NetworkPlan, fetched: Path, groups: Sequence[str]
) -> Remarks:
    """Return notes and warnings for the results."""
    outcome = read_outcome(fetched)
    silent: dict[str, str] = {}
    if outcome is not None and plan.held_out:
        silent = outcome.refused | outcome.unmeasured
    absent = [
        f"{site} took part in {count:,} of {counted(len(rounds), 'round')}"
        for site, count in _rounds_of(rounds, plan).items()
        if count < len(rounds) and all(run.participation == 1.0 for run in plan.runs)
    ]
    seen = f"no secure aggregation: {WITHOUT_AGGREGATION}"
    if plan.secure_aggregation is not None:
        words = with_aggregation(plan.secure_aggregation.threshold)
        seen = f"secure aggregation: {words}; how many records each site has is not known"
    noisy = []
    if plan.privacy is not None:
        noisy = ["counts of training rows are noisy: exact ones were not sent"]
    return Remarks(
        (seen, *noisy, *absent, *_large_shares(fetched)),
        (
            *_unseen(rounds, groups),
            *(f"{reason}: its held-out rows are not in the results" for reason in silent.values()),
        ),
    )


def _large_shares(fetched: Path) -> Iterator[str]:
    """Note a site that reports nearly all of the rows: the model is then nearly its own."""
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    rows = {} if agreed is None else {site: sum(own) for site, own in agreed.counts.items()}
    total = sum(rows.values())
    for site, own in rows.items():
        if len(rows) > 2 and own > LARGE_SHARE * total:
            yield f"{site} has {own:,} of all {total:,} training rows: the model is nearly its own"


def sites_of(rounds: Sequence[RoundRecord], plan: NetworkPlan) -> tuple[SiteOfRun, ...]:
    """Return for each site the rounds that it took part in, and how often it did not and why."""
    counts = _rounds_of(rounds, plan)
    reasons = {
        site: Counter(entry.sites.refused[site] for entry in rounds if site in entry.sites.refused)
        for site in plan.sites
    }
    return tuple(
        SiteOfRun(site=site, rounds=counts[site], refused=reasons[site]) for site in plan.sites
    )


def _rounds_of(rounds: Sequence[RoundRecord], plan: NetworkPlan) -> dict[str, int]:
    return {site: sum(site in entry.sites.took_part for entry in rounds) for site in plan.sites}


def _unseen(rounds: Sequence[RoundRecord], groups: Sequence[str]) -> Iterator[str]:
    """Warn about groups that no site reported: the run kept their weights, and learned nothing."""
    for place, name in enumerate(groups):
        numbers = [entry.round for entry in rounds if place in entry.unseen]
        if not numbers:
            continue
        gone = numbers[-1] == rounds[-1].round
        yield (
            f"group '{name}' was not seen in {len(numbers):,} of "
            f"{counted(len(rounds), 'round')}, from "
            f"round {numbers[0]:,} on: its weight was kept, and the model did not learn from it "
            f"then{'; it was still missing in the last round' if gone else ''}"
        )


def census_of_sites(plan: NetworkPlan, agreed: Agreed, tests: MeasuredTests) -> CensusFile:
    """Return the rows of each group, by site and by owner of a test file."""
    return CensusFile(
        format=FORMAT,
        sites=plan.senders,
        groups=agreed.encoding.group_names,
        small_groups=agreed.encoding.small_group_names,
        train=tuple(map(tuple, agreed.rows(plan.senders).tolist())),
        test=tuple(map(tuple, tests.by_site.tolist())),
        validation=tuple(map(tuple, agreed.validation_rows(plan.senders).tolist())),
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
        encoding = run.saved.encoding
        last, proof = run.rounds[-1], run.proof
        if proof is not None and proof.certificate is not None:
            last = replace(last, certificate=proof.certificate.in_units(run.unit))
        own = with_proof(results_of(run.saved, _facts(run, plan, census), test, remarks), last)
        further: dict[str, object] = {"sites": sites_of(run.rounds, plan)}
        if plan.secure_aggregation is not None:
            further["secure_aggregation"] = plan.secure_aggregation.threshold
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
            task=task,
            encoding=encoding,
            census=census,
            rounds=run.rounds,
            masked=plan.secure_aggregation is not None,
            fixed_rounds=plan.privacy is not None,
        )
        results.append(own)
    if len(runs) > 1 and has_rows:
        pairs = paired_sums_of(tests.metrics, tests.sums)
        results[0] = with_change(results[0], pairs, results[1])
    return results


def _merged(saved: SavedModel, tests: MeasuredTests, number: int) -> MergedOfRun | None:
    """Return a model's scores on each of the groups that were merged into one."""
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
    """Warn about groups whose risk is mostly noise."""
    test = tests.sums.counts.tolist()
    tested = dict(zip(saved.encoding.groups, test, strict=True)) if any(test) else {}
    return size_warnings(saved.encoding, train, tested)


def _facts(run: FinishedRun, plan: NetworkPlan, census: CensusFile) -> TrainingFacts:
    last = run.rounds[-1]
    method = run.table_run.trained_for(last.round)
    convergence = None
    if plan.privacy is None:
        convergence = run.table_run.judge(run.rounds, census, run.saved.iterate, run.validation)
    return TrainingFacts(
        method,
        plan.seed,
        seconds=last.seconds,
        gradient_evaluations=last.gradient_evaluations,
        convergence=convergence,
        finished=today(),
    )


def collect_network_run(
    fetched: Path,
    plan: NetworkPlan,
    config: TableConfig,
    folder: Path,
    spent: float | None = None,
) -> list[Results]:
    """Write the run folder from what the coordinator fetched; return each run's results.

    ``spent`` is what all runs on the same files have spent of a privacy guarantee, if known.
    """
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    if agreed is None:
        raise InputError(f"{fetched} has no {AGREEMENT_FILE}; the sites never agreed")
    runs = finished_runs(fetched, plan, agreed, config, folder)
    tests = measured_tests(fetched, plan, config, [run.saved for run in runs])
    census = census_of_sites(plan, agreed, tests)
    results = results_of_runs(runs, plan, fetched, tests, census)
    if plan.privacy is not None:
        promised = {"privacy": privacy_of_network_run(plan, agreed, spent)}
        results = [own.model_copy(update=promised) for own in results]
    # The method's run comes last: its results mark the whole folder as finished.
    for run, own in reversed(list(zip(runs, results, strict=True))):
        _write(run, own, census, config.report)
    return results


def _write(
    run: FinishedRun,
    results: Results,
    census: CensusFile,
    section: ReportSection,
) -> None:
    """Write a run's files; the results last, because they mark the run as finished."""
    folder = run.table_run.folder
    current, _ = checkpoint_paths(run.fetched)
    for name in (ROUNDS_FILE, current.name):
        write_copy(run.fetched / name, folder / name)
    write_json(folder / CENSUS_FILE, record_as_json(census))
    if run.alternative is not None:
        save_model(folder / f"{run.alternative.iterate}.safetensors", run.alternative)
    save_model(folder / MODEL_FILE, run.saved)
    write_card(
        folder,
        results,
        run.saved.encoding,
        census=census,
        card=run.table_run.card,
        section=section,
    )
    write_results(folder, results)
