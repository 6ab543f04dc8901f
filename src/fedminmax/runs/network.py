"""Write the run folder of a run over a network from what the coordinator fetched.

The files are those of a run in one process. `rounds.jsonl` also has, for each round, which sites
took part, which did not and why, with times and bytes. Test rows are those that sites held out,
whose scores arrive as sums, and those in the coordinator's test files, which are scored here and
added to them. The results also warn about sites that were missing and groups that the run did not
see.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.planned_runs import with_rate
from fedminmax.config.read import TableConfig
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_copy
from fedminmax.core.text import counted
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.census import FORMAT, CensusFile
from fedminmax.data.tables.encode import encode, merged_numbers
from fedminmax.data.tables.load import size_warnings, small_group_remarks
from fedminmax.data.tables.sources import read_source
from fedminmax.exports.effects import departures_of
from fedminmax.exports.saved_model import SavedModel
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.findings.records import PrivacyOfRun, Results, SiteOfRun
from fedminmax.metrics.code_sums import CodeSums
from fedminmax.metrics.sums import ScoreSums, by_group, score_table, sum_by_group
from fedminmax.network.secure.layouts import mechanism_of_plan
from fedminmax.network.server.agree import NoisyCensus
from fedminmax.network.server.agreement import AGREEMENT_FILE, Agreed, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.measure import read_measured
from fedminmax.network.server.run import read_answer, read_outcome, read_proof
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.runs.assemble import (
    FinishedRun,
    assemble,
    finished_run,
    write_run,
)
from fedminmax.runs.audit import collect_audit
from fedminmax.runs.frontier import write_frontier
from fedminmax.runs.plan import table_runs
from fedminmax.runs.privacy import guarantee_of
from fedminmax.training.checkpoint import checkpoint_paths
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds

# Warn if one of three or more sites has more than this share of all rows.
LARGE_SHARE = 0.9


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
    if plan.audit:
        outcome = read_outcome(fetched)
        return collect_audit(fetched, plan, folder, outcome.unmeasured if outcome else {})
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    if agreed is None:
        raise InputError(f"{fetched} has no {AGREEMENT_FILE}; the sites never agreed")
    runs = read_runs(fetched, plan, agreed, config, folder)
    tests = score_tests(fetched, plan, config, [own for run in runs for own in _measured_of(run)])
    census = census_of_sites(plan, agreed, tests)
    runs = [_with_remarks(run, plan, fetched, census, tests) for run in runs]
    departures = departures_of(agreed.encoding, tests.codes)
    for number, own in enumerate(departures or ()):
        # Of a mixture the sums are those of its first model.
        if isinstance(runs[number].saved.model, AdditiveModel):
            runs[number] = replace(runs[number], departures=own)
    masks = plan.secure_aggregation
    protected: dict[str, Any] = {
        "privacy": None if plan.privacy is None else _privacy(plan, agreed, spent),
        "secure_aggregation": masks.threshold if masks else None,
    }
    found, unit = runs[0].frontier, agreed.encoding.risk_unit
    results = []
    if found is None:
        results = assemble(runs, tests.sums, config, census, by_site=tests.totals, **protected)
    # The method's run comes last: its results mark the whole folder as finished.
    for number in reversed(range(len(runs))):
        source, target = run_folder(fetched, plan, number), runs[number].table_run.folder
        current, _ = checkpoint_paths(source)
        for name in (ROUNDS_FILE, current.name):
            write_copy(source / name, target / name)
        if found is None:
            write_run(runs[number], results[number], config, census)
    if found is not None:
        return write_frontier(runs[0], found, tests.sums, config, census, unit=unit, **protected)
    return results


def _measured_of(run: FinishedRun) -> tuple[SavedModel, ...]:
    return (run.saved,) if run.frontier is None else run.frontier.saved


def _privacy(plan: NetworkPlan, agreed: Agreed, spent: float | None) -> PrivacyOfRun:
    """Return what results of a run between sites say of the promise.

    What was ``spent`` on their tables the sites know, each for itself, unless all are local.
    """
    return guarantee_of(mechanism_of_plan(plan), NoisyCensus(plan).minimum_group(agreed), spent)


def read_runs(
    fetched: Path, plan: NetworkPlan, agreed: Agreed, config: TableConfig, folder: Path
) -> list[FinishedRun]:
    """Read each of the plan's runs; ``folder`` is where its results will be."""
    planned = plan.runs
    if agreed.learning_rate is not None:
        planned = with_rate(planned, agreed.learning_rate)
    task, encoding = task_of(plan, agreed.encoding), agreed.encoding
    runs = []
    for number, table_run in enumerate(table_runs(planned, config, folder)):
        source = run_folder(fetched, plan, number)
        done = finished_run(
            table_run,
            read_rounds(source / ROUNDS_FILE),
            read_answer(source),
            lambda parameters: model_with(task, parameters).float(),
            encoding,
            config,
        )
        proof = read_proof(source)
        if proof is not None and proof.certificate is not None:
            proved = proof.certificate.in_units(encoding.risk_unit)
            done = replace(done, certificate=proved)
        runs.append(
            replace(
                done,
                warnings=(proof.reason,) if proof and proof.reason else (),
                sites=sites_of(done.rounds, plan),
                class_bytes=agreed.class_bytes,
            )
        )
    return runs


@dataclass(frozen=True, eq=False)
class ScoredTests:
    """Sums of all runs' models on test rows, and these rows by site and by owner of a file.

    ``totals`` of scores are by site, where they are not masked. ``codes`` are sums over training
    rows.
    """

    sums: ScoreSums
    codes: CodeSums
    by_site: Tensor
    totals: dict[str, Tensor]
    of_files: dict[str, tuple[int, ...]]


def score_tests(
    fetched: Path, plan: NetworkPlan, config: TableConfig, models: Sequence[SavedModel]
) -> ScoredTests:
    """Combine the sites' scores with these models' scores on the configuration's test files."""
    encoding = models[0].encoding
    measured = read_measured(fetched)
    by_owner: dict[str, ScoreSums] = {}
    for source in config.test:
        for part in read_source(source, config).parts:
            rows = encode(part.rows, encoding, part.source)
            tables = [score_table(saved.model, rows, encoding) for saved in models]
            merged = merged_numbers(part.rows, encoding)
            sums = sum_by_group(torch.cat(tables, dim=1), rows.group, merged, encoding)
            before = by_owner.get(part.owner)
            by_owner[part.owner] = sums if before is None else before + sums
    by_site = measured.rows.clone()
    counts = {owner: by_group(sums, encoding)[0].counts for owner, sums in by_owner.items()}
    for owner in set(by_owner) & set(plan.senders):
        by_site[plan.senders.index(owner)] += counts[owner]
    of_files = {
        owner: tuple(rows.tolist()) for owner, rows in counts.items() if owner not in plan.senders
    }
    totals = dict(zip(plan.senders, measured.totals, strict=True)) if len(measured.totals) else {}
    for owner, sums in by_owner.items():
        totals[owner] = totals.get(owner, 0.0) + sums.totals
    everything = reduce(add, by_owner.values(), measured.sums)
    return ScoredTests(everything, measured.codes, by_site, totals, of_files)


def _with_remarks(
    run: FinishedRun, plan: NetworkPlan, fetched: Path, census: CensusFile, tests: ScoredTests
) -> FinishedRun:
    """Add notes and warnings: on sites and groups that were missing, and on small groups."""
    encoding = run.saved.encoding
    notes, warnings = remarks_on(run.rounds, plan, fetched, run.saved.groups)
    rows = [sum(column) for column in zip(*census.train, strict=True)]
    train = dict(zip(encoding.groups, rows, strict=True))
    counts = by_group(tests.sums, encoding)[0].counts.tolist()
    tested = dict(zip(encoding.groups, counts, strict=True)) if any(counts) else {}
    return replace(
        run,
        notes=(*notes, *small_group_remarks(encoding, train)),
        warnings=(*warnings, *run.warnings, *size_warnings(encoding, train, tested)),
    )


def remarks_on(
    rounds: Sequence[RoundRecord], plan: NetworkPlan, fetched: Path, groups: Sequence[str]
) -> tuple[list[str], list[str]]:
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
    unmeasured = [
        f"{reason}: its held-out rows are not in the results" for reason in silent.values()
    ]
    notes = [seen, *noisy, *absent, *_large_shares(fetched)]
    return notes, [*_unseen(rounds, groups), *unmeasured]


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


def census_of_sites(plan: NetworkPlan, agreed: Agreed, tests: ScoredTests) -> CensusFile:
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
