"""Measure models that were trained elsewhere by group, as a run measures its own.

Each site's records give the sums of ``metrics.sums``; values, intervals and, with a second model,
its changes record by record are functions of their total. The folder has the files that
`fedminmax report` reads; there are no rounds in it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedminmax.config.messages import toml_string
from fedminmax.config.schema import PROPOSED_MISSING_VALUES, MissingGroup, Schema
from fedminmax.core.errors import InputError
from fedminmax.core.files import atomic_write, write_json, write_text
from fedminmax.data.tables.census import FORMAT, CensusFile
from fedminmax.data.tables.encoding import Encoding, Scale
from fedminmax.data.tables.groups import GroupKey, sort_groups
from fedminmax.data.tables.parse_columns import read_values
from fedminmax.data.tables.parse_rows import ParsedRows, parse_rows
from fedminmax.data.tables.propose import InitChoices, propose
from fedminmax.data.tables.read_file import FileTable, read_table
from fedminmax.exports.given_model import GivenModel, OnnxModel
from fedminmax.findings import records
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.findings.verdict import judge
from fedminmax.metrics.row_scores import stacked
from fedminmax.metrics.sums import (
    ScoreSums,
    by_group,
    empty_sums,
    metric_names,
    score_predictions,
    sum_scores,
)
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.measure import read_measured
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.runs.assemble import NO_SITES, today
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    write_results,
)
from fedminmax.runs.measured import change_from, measured, site_parity

PREDICTIONS = "predictions"
ALL_RECORDS = (
    "Every record of the files is measured. If the model has seen some of them in training, it "
    "looks better than it is."
)


NO_SITE = "site missing"


@dataclass(frozen=True, eq=False)
class ScoredSite:
    """One site's records: their groups and, of each model, their scores side by side."""

    site: str
    group: Tensor
    scores: Tensor


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured: a model's results, those of the other one, and records by site."""

    results: tuple[records.Results, ...]
    census: CensusFile
    _: KW_ONLY
    schema: Schema


def audit_files(
    models: Sequence[GivenModel],
    files: Sequence[Path],
    target: str,
    groups: Sequence[str],
    *,
    site_column: str | None = None,
    choices: InitChoices | None = None,
    scored_folder: Path | None = None,
) -> Audit:
    """Measure one model, or a model against a second one, on all records of these files.

    Args:
        models: the model and, if there are two, what it is compared with.
        files: one per site, or one with a site column.
        target: the column that the models predict.
        groups: sensitive attributes; several are crossed.
        site_column: of one file, the column that names the site.
        choices: what `fedminmax init` would be told: the task, the positive class, the format.
        scored_folder: where each file is also written with its predictions, if anywhere.
    """
    started = time.monotonic()
    for model in models:
        if target in model.columns:
            raise InputError(
                f"{model.name} takes the target '{target}' as a column; give the model that "
                "predicts it, or another --target"
            )
    proposal = propose(
        files,
        target,
        groups,
        site_column=site_column,
        choices=choices or InitChoices(),
        with_features=False,
    )
    schema = Schema(
        proposal.target,
        (),
        proposal.protected,
        missing_group=MissingGroup.OWN_GROUP,
        missing_values=PROPOSED_MISSING_VALUES,
        unlisted_group=MissingGroup.OWN_GROUP,
        merge_spellings=proposal.choices.merge_spellings,
    )
    sites = () if site_column is None else (site_column,)
    wanted = (*schema.columns, *sites, *(column for model in models for column in model.columns))
    tables = {
        site: read_table(path, wanted, proposal.formats[site])
        for site, path in proposal.files.items()
    }
    parsed = {site: parse_rows(table, schema) for site, table in tables.items()}
    encoding = audit_encoding(schema, [key for rows in parsed.values() for key in rows.group_keys])
    scored = [
        part
        for site, table in tables.items()
        for part in _by_site(
            site, table, site_column, schema, score_table(models, table, parsed[site], encoding)
        )
    ]
    if scored_folder is not None:
        _write_scored(models, tables, schema, scored_folder)
    groups_in_all = len(encoding.groups)
    counts = [torch.bincount(part.group, minlength=groups_in_all).tolist() for part in scored]
    census = audit_census([part.site for part in scored], counts, encoding)
    total = sum_sites(scored, encoding)
    seconds = time.monotonic() - started
    by_site = {part.site: sum_sites([part], encoding).totals for part in scored}
    results = audit_results(
        [(own.name, own.kind) for own in models], total, encoding, seconds, by_site
    )
    assumed = [own.assumption(schema.target) for own in models if isinstance(own, OnnxModel)]
    if notes := tuple(note for note in assumed if note is not None):
        results = tuple(own.model_copy(update={"notes": own.notes + notes}) for own in results)
    return Audit(results, census, schema=schema)


def _write_scored(
    models: Sequence[GivenModel], tables: Mapping[str, FileTable], schema: Schema, folder: Path
) -> None:
    """Write each table with columns of predictions, which [audit] of a configuration can name."""
    folder.mkdir(parents=True, exist_ok=True)
    for site, table in tables.items():
        frame = table.frame
        for name, model in zip(("prediction", "prediction_against"), models, strict=False):
            predicted = model.predict(table, schema)
            classes = schema.target.classes
            parts = {name: predicted if predicted.ndim == 1 else predicted[:, -1]}
            if len(classes) > 2:
                parts = {f"{name}_{own}": predicted[:, n] for n, own in enumerate(classes)}
            if taken := [column for column in parts if column in frame.columns]:
                raise InputError(f"{site} has a column '{taken[0]}' already; rename it")
            frame = frame.with_columns(**parts)
        with atomic_write(folder / f"{site}.csv") as temporary:
            frame.write_csv(temporary)


def audit_encoding(schema: Schema, keys: Sequence[GroupKey]) -> Encoding:
    """Return the encoding of targets and groups, without features: models read their own."""
    scale = Scale(0.0, 1.0) if schema.target.is_quantity else None
    return Encoding(schema, (), sort_groups(keys, schema), target_scale=scale, dropped=())


def score_table(
    models: Sequence[GivenModel], table: FileTable, rows: ParsedRows, encoding: Encoding
) -> tuple[Tensor, Tensor]:
    """Return each record's group, and its scores by all models side by side."""
    numbers = encoding.group_numbers
    group = np.array([numbers[key] for key in rows.group_keys], np.int64)[rows.group]
    target = torch.tensor(rows.target)
    scores = [
        stacked(score_predictions(model.predict(table, encoding.schema), target, encoding))
        for model in models
    ]
    return torch.from_numpy(group), torch.from_numpy(np.concatenate(scores, axis=1))


def _by_site(
    site: str,
    table: FileTable,
    column: str | None,
    schema: Schema,
    scored: tuple[Tensor, Tensor],
) -> list[ScoredSite]:
    group, scores = scored
    if column is None:
        return [ScoredSite(site, group, scores)]
    names = read_values(table, column, schema).fill_null(NO_SITE).to_numpy().astype(str)
    return [
        ScoredSite(str(name), group[names == name], scores[names == name])
        for name in np.unique(names)
    ]


def sum_sites(scored: Sequence[ScoredSite], encoding: Encoding) -> ScoreSums:
    """Add the sites' sums of scores."""
    groups, names = len(encoding.groups), metric_names(encoding)
    total = empty_sums(groups, names, scored[0].scores.shape[1] // (2 * len(names)))
    for part in scored:
        total += sum_scores(part.scores, part.group, groups, names)
    return total


def audit_census(
    sites: Sequence[str], counts: Sequence[Sequence[int]], encoding: Encoding
) -> CensusFile:
    """Return the records by site and group, all of them test records."""
    return CensusFile(
        format=FORMAT,
        sites=tuple(sites),
        groups=encoding.group_names,
        train=tuple((0,) * len(encoding.groups) for _ in sites),
        test=tuple(tuple(line) for line in counts),
    )


def audit_results(
    models: Sequence[tuple[str, str]],
    sums: ScoreSums,
    encoding: Encoding,
    seconds: float,
    by_site: Mapping[str, Tensor] = NO_SITES,
) -> tuple[records.Results, ...]:
    """Return each model's results from sums of scores, the first with its change from the second.

    ``models`` are their names and kinds, in the order of the scores; ``by_site`` has the totals of
    scores at each site, where they are known.
    """
    classes = encoding.schema.target.classes
    names = encoding.group_names
    results: list[records.Results] = []
    for number in reversed(range(len(models))):
        name, kind = models[number]
        change = change_from(results[0], encoding, sums) if results else None
        own = records.Results(
            format=FORMAT,
            method=records.MethodOfRun(key=records.AUDIT, name=name, options={}, rounds=0),
            task="classification" if classes else "regression",
            target=encoding.schema.target.column,
            model=records.ModelOfRun(kind=kind, hidden=(), members=1),
            loss="brier" if classes else "squared_error",
            iterate="given",
            classes=classes,
            groups=names,
            seed=0,
            seconds=seconds,
            finished=today(),
            gradient_evaluations=0,
            convergence=None,
            test=measured(sums, encoding, names, (), number),
            notes=(ALL_RECORDS,),
        )
        if change is not None:
            own = own.model_copy(update={"change": change})
            own = own.model_copy(update={"verdict": judge(own)})
        if number == 0 and len(by_site) > 1 and (known := site_parity(by_site, encoding)):
            own = own.model_copy(update={"site_parity": known})
        results.insert(0, own)
    return tuple(results)


def collect_audit(
    fetched: Path, plan: NetworkPlan, folder: Path, unmeasured: Mapping[str, str]
) -> list[records.Results]:
    """Write the run folder of an audit between sites; return each model's results.

    ``unmeasured`` says why sites reported nothing.
    """
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    if agreed is None:
        raise InputError(f"{fetched} has no {AGREEMENT_FILE}; the sites never agreed")
    measured, encoding = read_measured(fetched), agreed.encoding
    sums, _ = by_group(measured.sums, encoding)
    by_site = dict(zip(plan.senders, measured.totals, strict=True)) if len(measured.totals) else {}
    models = [(", ".join(columns), PREDICTIONS) for columns in plan.audit]
    results = audit_results(models, sums, encoding, 0.0, by_site)
    masks = plan.secure_aggregation
    changes: dict[str, object] = {
        "sites": tuple(
            records.SiteOfRun(site=site, rounds=0, refused={unmeasured[site]: 1})
            if site in unmeasured
            else records.SiteOfRun(site=site, rounds=0, refused={})
            for site in plan.sites
        ),
        "notes": (ALL_RECORDS, with_aggregation(masks.threshold) if masks else WITHOUT_AGGREGATION),
    }
    if masks is not None:
        changes["secure_aggregation"] = masks.threshold
    known = tuple(own.model_copy(update=changes) for own in results)
    census = audit_census(plan.senders, measured.rows.tolist(), encoding)
    write_audit(folder, Audit(known, census, schema=encoding.schema))
    return list(known)


def write_audit(folder: Path, audit: Audit) -> None:
    """Write the folder that `fedminmax report` reads; results come last."""
    groups = [entry.column for entry in audit.schema.protected]
    text = (
        f"[data]\ntarget = {toml_string(audit.schema.target.column)}\n\n"
        f"[groups]\ncolumns = [{', '.join(map(toml_string, groups))}]\n"
    )
    folders = (folder, folder / BASELINE_FOLDER)[: len(audit.results)]
    for own, results in reversed(list(zip(folders, audit.results, strict=True))):
        own.mkdir(parents=True, exist_ok=True)
        write_json(own / CENSUS_FILE, records.record_as_json(audit.census))
        write_text(own / CONFIG_FILE, text)
        write_results(own, results)
