"""Put the results of finished runs together, and write their folders.

A run in one process and a run over a network come here in the same form: the answers of the method
and of its baseline, their rounds, and the sums of their scores on test rows. All metrics, intervals
and changes are functions of these sums (``metrics.sums``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from statistics import median_high
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.advice.cost import message_bytes, task_of_tables, usual_rounds
from fedminmax.advice.counts import nearest_to_weights
from fedminmax.config.read import TableConfig
from fedminmax.core.certificate import Certificate
from fedminmax.core.files import write_json, write_text
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.core.solvers.simplex import FixedShares
from fedminmax.core.text import percent
from fedminmax.core.validation import ALL_ROWS, ONE_SITE, SMALL_GROUPS, ValidationRisk
from fedminmax.data.tables.census import FORMAT, CensusFile
from fedminmax.data.tables.encode import blank_row
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.plain_fit import Departure
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, mixed_model, save_model
from fedminmax.findings import records
from fedminmax.findings.card import render_card
from fedminmax.findings.verdict import judge
from fedminmax.methods.card import KEEP_SHARE_FOR_NETWORKS
from fedminmax.methods.shared.excess_server import OwnRisks
from fedminmax.methods.shared.frontier_server import FoundPoints
from fedminmax.methods.shared.look_ahead import LookAhead
from fedminmax.methods.shared.servers import ProvedBoundary
from fedminmax.metrics.sums import (
    ScoreSums,
    by_group,
)
from fedminmax.runs.folder import BASELINE_FOLDER, CARD_FILE, CENSUS_FILE, write_results
from fedminmax.runs.measured import change_from, measured, site_parity
from fedminmax.runs.plan import CHOSEN, TableRun
from fedminmax.training.progress import RunAnswer
from fedminmax.training.round_record import RoundRecord

# Whose validation risk it is, if it is no group's.
NO_SITES: Mapping[str, Tensor] = MappingProxyType({})
OTHERS = {SMALL_GROUPS: None, ALL_ROWS: "all rows", ONE_SITE: "worst site"}


def today() -> str:
    """Return today's date in UTC, in ISO format."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True, eq=False)
class FoundFrontier:
    """The points of a frontier, and their models."""

    found: FoundPoints
    saved: tuple[SavedModel, ...]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run whose rounds are done: its answer, what was proved of it, and remarks on its rows.

    ``scores`` are those of each part of the test rows, if they are in this process.
    ``alternative`` is the last model if validation rows chose the answer, otherwise their choice.
    ``frontier`` are all models between the plain and the minimax model, the answer among them, and
    ``own_risks`` what groups' own models reach, if the method asked.
    ``personal`` are the metrics of models that sites keep to themselves; ``sites`` says how often
    each site took part, over a network, and ``class_bytes`` what a site got and sent before the
    first round, to choose smoothing and pairs. ``departures`` of groups from effects are known if
    records are in this process. ``finished`` is a date.
    """

    table_run: TableRun
    rounds: Sequence[RoundRecord]
    _: KW_ONLY
    saved: SavedModel
    scores: Sequence[Tensor] = ()
    alternative: SavedModel | None = None
    validation: records.ValidationOfRun | None = None
    certificate: Certificate | None = None
    frontier: FoundFrontier | None = None
    boundary: ProvedBoundary | None = None
    own_risks: OwnRisks | None = None
    personal: records.Measured | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sites: tuple[records.SiteOfRun, ...] | None = None
    class_bytes: tuple[int, int] = (0, 0)
    departures: tuple[Departure, ...] | None = None
    finished: str = field(default_factory=today)


def assemble(
    runs: Sequence[FinishedRun],
    sums: ScoreSums,
    config: TableConfig,
    census: CensusFile,
    *,
    privacy: records.PrivacyOfRun | None = None,
    secure_aggregation: int | None = None,
    by_site: Mapping[str, Tensor] = NO_SITES,
) -> list[records.Results]:
    """Return each run's results, the first with its change from the second.

    Args:
        runs: the method's, then the baseline's if it is finished.
        sums: their scores on test rows side by side, by group and by merged group.
        config: of all runs.
        census: rows by site and group.
        privacy: what is guaranteed of rows, if anything.
        secure_aggregation: over how many sites totals were, at least, where sums were masked.
        by_site: the totals of scores by line at each site, where they are known.
    """
    results: list[records.Results] = []
    # The baseline comes first: the method's results name it.
    for number in reversed(range(len(runs))):
        run = runs[number]
        last, saved = run.rounds[-1], run.saved
        test, merged = by_group(sums, saved.encoding)
        merged_names = saved.encoding.merged_group_names
        sections: dict[str, Any] = {
            "gap_left": last.remaining,
            "proof": run.certificate,
            "validation": run.validation,
            "personal": run.personal,
            "merged": records.MergedOfRun(
                groups=merged_names,
                test=measured(
                    merged, saved.encoding, merged_names, range(len(merged_names)), number
                ),
            )
            if merged_names
            else None,
            "sites": run.sites,
            "secure_aggregation": secure_aggregation,
            "change": change_from(results[0], saved.encoding, test) if results else None,
            # Where sums are masked nobody knows whose rows are whose.
            "reach": None if secure_aggregation else _reach(run.rounds, census),
            "privacy": privacy,
            "departures": run.departures,
            "site_parity": site_parity({} if privacy or number else by_site, saved.encoding),
            "boundary": _boundary(run, census),
            "own_risks": run.own_risks,
        }
        # Sections that a run does not have are not in its file, so they are not set.
        present = {name: value for name, value in sections.items() if value is not None}
        own = records.Results(
            format=FORMAT,
            method=run.table_run.trained_for(last.round),
            task="classification" if saved.classes else "regression",
            target=saved.encoding.schema.target.column,
            model=records.ModelOfRun(
                kind=saved.kind,
                hidden=saved.hidden,
                members=saved.members,
                monotone=saved.encoding.directions,
            ),
            loss=saved.loss,
            iterate=saved.iterate,
            classes=saved.classes,
            groups=saved.groups,
            small_groups=saved.encoding.small_group_names,
            seed=config.seed,
            seconds=last.seconds,
            finished=run.finished,
            gradient_evaluations=last.gradient_evaluations,
            # Sums with noise tell nothing about convergence.
            convergence=None
            if config.privacy
            else run.table_run.judge(run.rounds, census, saved.iterate, run.validation),
            test=measured(test, saved.encoding, saved.groups, saved.small_group_numbers, number),
            notes=(*run.notes, *_notes_on_tolerance(run, config, census)),
            warnings=run.warnings,
            cost=_cost(run, config, census, masked=secure_aggregation is not None),
            **present,
        )
        if run.table_run.folder.name != BASELINE_FOLDER:
            own = own.model_copy(update={"verdict": judge(own)})
        results.insert(0, own)
    return results


def write_run(
    run: FinishedRun, results: records.Results, config: TableConfig, census: CensusFile
) -> None:
    """Write a run's models, its card and, last, the results, which mark it as finished."""
    folder, card = run.table_run.folder, run.table_run.card
    write_json(folder / CENSUS_FILE, records.record_as_json(census))
    if run.alternative is not None:
        save_model(folder / f"{run.alternative.iterate}.safetensors", run.alternative)
    save_model(folder / MODEL_FILE, run.saved)
    text = render_card(results, run.saved.encoding, census=census, card=card, section=config.report)
    write_text(folder / CARD_FILE, text)
    write_results(folder, results)


def finished_run(
    run: TableRun,
    rounds: Sequence[RoundRecord],
    answer: RunAnswer,
    build: Callable[[Tensor], nn.Module],
    encoding: Encoding,
    config: TableConfig,
) -> FinishedRun:
    """Return a run whose rounds are done; ``build`` makes a model of its parameters."""
    facts, unit = answer.facts, encoding.risk_unit

    def saved(members: Tensor, iterate: Iterate | None) -> SavedModel:
        name = CHOSEN if iterate is None else iterate.value
        models = [build(parameters) for parameters in members]
        return mixed_model(models, encoding, config.model, name, config.format)

    def risk_of(judged: ValidationRisk | None) -> records.RiskAfterRound | None:
        if judged is None:
            return None
        return records.RiskAfterRound(
            round=judged.round,
            risk=judged.risk * unit,
            standard_error=judged.standard_error * unit,
            group=OTHERS[judged.group] if judged.group < 0 else encoding.group_names[judged.group],
        )

    validation = alternative = frontier = None
    if facts.rows:
        validation = records.ValidationOfRun(
            rows=facts.rows,
            chosen=risk_of(facts.chosen),
            last=risk_of(facts.latest),
            patience=run.patience,
        )
    if facts.chosen is not None:
        other = Iterate.LAST if facts.iterate is Iterate.BEST else Iterate.BEST
        alternative = saved(answer.alternative, other)
    if facts.found is not None:
        models = tuple(saved(point, None) for point in answer.measured)
        frontier = FoundFrontier(facts.found, models)
    return FinishedRun(
        run,
        rounds,
        saved=saved(answer.members, facts.iterate),
        alternative=alternative,
        validation=validation,
        certificate=rounds[-1].certificate,
        frontier=frontier,
        boundary=facts.boundary and facts.boundary.in_units(unit),
        own_risks=facts.own_risks and facts.own_risks.in_units(unit),
    )


def _boundary(run: FinishedRun, census: CensusFile) -> records.BoundaryOfRun | None:
    """Return where the model is and what is proved around it; None if nothing is known."""
    own = run.boundary
    if own is None:
        return None
    worst = own.worst
    if worst is None:
        # The best model is one of those that rounds began with.
        rows = torch.tensor(census.train, dtype=torch.float64).sum(dim=0)
        shares = rows / rows.sum()
        known = [record.risks for record in run.rounds if not record.unseen]
        if not known:
            return None
        risks = min(torch.tensor(known, dtype=torch.float64), key=lambda own: float(shares @ own))
        included = torch.tensor([group not in census.small_groups for group in census.groups])
        worst = float(FixedShares(shares, included).mix(risks).max()) + own.penalty
    return records.BoundaryOfRun(mean=own.mean, worst=worst, lines=own.lines)


def _notes_on_tolerance(
    run: FinishedRun, config: TableConfig, census: CensusFile
) -> tuple[str, ...]:
    """Say where a tolerance has no second phase, for want of second derivatives."""
    method = run.table_run.method
    tolerance = getattr(method, "tolerance", 0.0)
    if not tolerance or not isinstance(method, LookAhead):
        return ()
    linear = linear_structure_of(task_of_tables(config.model, run.saved.encoding))
    groups, sites = len(census.groups), len(census.train)
    if config.privacy is None and method.with_curvature(linear, groups=groups, sites=sites):
        return ()
    reason = "a privacy guarantee allows none" if config.privacy else "the model is too wide"
    kept = percent(KEEP_SHARE_FOR_NETWORKS)
    text = (
        f"tolerance = {tolerance:g} has no effect: it needs second derivatives, and {reason}; "
        f"instead every group kept {kept} of its share as weight (keep_share)"
    )
    return (text,)


def _reach(rounds: Sequence[RoundRecord], census: CensusFile) -> records.ReachOfRun | None:
    """Return the final weights' distance to the hull; None for a run without group weights."""
    last = rounds[-1]
    if last.weights_over != "groups":
        return None
    nearest = nearest_to_weights(census.train, last.weights)
    return records.ReachOfRun(weights=last.weights, distance=nearest.distance)


def _cost(
    run: FinishedRun, config: TableConfig, census: CensusFile, *, masked: bool
) -> records.CostOfRun:
    """Return the run's cost, over a network also as counted.

    Where sums are masked messages are as long as counted: keys and shares travel, too. With a
    privacy guarantee rounds are fixed beforehand, and no estimate is compared with them.
    """
    encoding, saved = run.saved.encoding, run.saved
    task = task_of_tables(config.model, encoding)
    linear = linear_structure_of(task)
    rows = Census(torch.tensor(census.train), len(saved.classes), linear=linear)
    messages = message_bytes(
        run.table_run.method,
        task,
        rows,
        blank_row(encoding),
        validates=any(map(any, census.validation)),
    )
    cost: dict[str, object] = {"bytes_down": messages.down, "bytes_up": messages.up}
    usual = usual_rounds(
        run.table_run.card.key,
        linear=linear is not None,
        loss=saved.loss,
        additive=encoding.is_additive,
    )
    if usual is not None and config.privacy is None:
        cost["usual_rounds"] = (usual.low, usual.high)
    if encoding.plain_fit is not None:
        cost["class_rounds"] = encoding.plain_fit.rounds
    if run.sites is not None:
        cost["counted_down"] = median_high([entry.sites.bytes_out for entry in run.rounds])
        cost["counted_up"] = median_high([entry.sites.bytes_in for entry in run.rounds])
        down, up = run.class_bytes
        cost["total_down"] = down + sum(entry.sites.bytes_out for entry in run.rounds)
        cost["total_up"] = up + sum(entry.sites.bytes_in for entry in run.rounds)
        if masked:
            cost["bytes_down"], cost["bytes_up"] = cost["counted_down"], cost["counted_up"]
    return records.CostOfRun.model_validate(cost)
