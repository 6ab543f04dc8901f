"""Put the runs of all configurations together: results.json, table.md and the figure.

    python -m experiments.schools.summary FOLDER --out experiments/schools/results

FOLDER has what `experiments.schools.tables` wrote and, under `out`, a run of each configuration
with several seeds. Changes are paired: both models on the same held-out rows. Rows of a pupil are
not independent, so intervals take pupils as clusters: the estimate is a sum of what each row adds,
and its variance is C/(C - 1) times the sum over C clusters of the square of what the cluster adds
(Liang, Zeger, Biometrika 1986), with Student's t of C - 1 degrees of freedom.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student

from experiments.schools.tables import COMPARISONS, MODELS, TABLES
from fedminmax.config.read import Overrides, read_config
from fedminmax.core.files import write_text
from fedminmax.data.tables.load import FederatedTables, OwnedExamples, load_federated_tables
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.training import certificate_text
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.metrics.sums import score_rows
from fedminmax.report.style import new_figure, save_figure
from fedminmax.runs.folder import finished_results

Vector = NDArray[np.float64]
Numbers = NDArray[np.int64]
RISK = "squared_error"
WORST, ALL = "worst group", "all"


@dataclass(frozen=True)
class Change:
    """Method minus baseline in mean squared error; intervals with pupils, and schools, clustered.

    The interval of schools is NaN where fewer than two have such rows.
    """

    value: float
    low: float
    high: float
    low_by_school: float
    high_by_school: float
    rows: int


@dataclass(frozen=True)
class ModelRisks:
    """Worst and mean risks of one model, over groups that are large enough and over schools."""

    method: str
    rounds: int
    train_worst: float
    train_worst_school: float
    train_mean: float
    test_worst: float
    test_worst_group: str
    test_mean: float
    proved_lower: float | None
    proved_for: str | None
    certificate: str | None


@dataclass(frozen=True)
class Run:
    """One configuration with one seed."""

    table: str
    model: str
    compared: str
    seed: int
    ours: ModelRisks
    baseline: ModelRisks
    changes: dict[str, Change]


@dataclass(frozen=True, eq=False)
class Rows:
    """Squared errors of some rows under two models, with their groups, pupils and schools."""

    after: Vector
    before: Vector
    group: Numbers
    pupil: Numbers
    school: Numbers


def half_width(adds: Vector, cluster: Numbers) -> float:
    """Return how far a 95% interval reaches, from what each row adds to an estimate."""
    sums = np.bincount(np.unique(cluster, return_inverse=True)[1], weights=adds)
    count = len(sums)
    if count < 2:
        return math.nan
    quantile = float(student.ppf(0.975, count - 1))
    return quantile * math.sqrt(count / (count - 1) * float(sums @ sums))


def change_of(rows: Rows, after: NDArray[np.bool_], before: NDArray[np.bool_]) -> Change:
    """Return the mean after, over some rows, minus the mean before, over some (or other) rows."""
    means = float(rows.after[after].mean()), float(rows.before[before].mean())
    adds = np.zeros(len(rows.after))
    adds[after] += (rows.after[after] - means[0]) / after.sum()
    adds[before] -= (rows.before[before] - means[1]) / before.sum()
    either = after | before
    value = means[0] - means[1]
    pupils, schools = (half_width(adds[either], own[either]) for own in (rows.pupil, rows.school))
    return Change(
        value, value - pupils, value + pupils, value - schools, value + schools, int(after.sum())
    )


@cache
def load_rows(folder: Path, table: str, model: str, seed: int) -> tuple[FederatedTables, Numbers]:
    """Return the encoded rows of a split, and whom each test row is of."""
    config = read_config(folder / f"{table}-{model}-minimax-mean.toml")
    config = Overrides(seed=seed).apply(config)
    tables = load_federated_tables(config)
    numbers = np.concatenate([tables.held_out.rows[part.owner] for part in tables.test])
    if config.schema.person_column is None:
        return tables, numbers
    pupils = pl.read_csv(folder / f"{table}.csv")[config.schema.person_column].to_numpy()
    return tables, pupils[numbers - 1].astype(np.int64)


def errors_of(model: SavedModel, parts: Sequence[OwnedExamples]) -> tuple[Vector, Numbers, Numbers]:
    """Return each row's squared error, group and school."""
    errors = [
        score_rows(model.model, part.examples, model.encoding)[RISK].numerators for part in parts
    ]
    group = np.concatenate([part.examples.group.numpy() for part in parts])
    school = np.repeat(np.arange(len(parts)), [len(part.examples) for part in parts])
    return np.concatenate(errors), group, school


def mean_by(values: Vector, part: Numbers, parts: int = 0) -> Vector:
    """Return the mean of each part's values; NaN where it has none."""
    counts = np.bincount(part, minlength=parts)
    with np.errstate(invalid="ignore"):
        means: Vector = np.bincount(part, weights=values, minlength=parts) / counts
    return means


def risks_of(
    place: Path, tables: FederatedTables, plays: NDArray[np.bool_], by_group: Vector, test: Vector
) -> ModelRisks:
    """Return the risks of a run's model; ``by_group`` and ``test`` are those of held-out rows."""
    saved, results = load_model(place), finished_results(place)
    train, group, school = errors_of(saved, tables.train)
    proof = results.proof
    return ModelRisks(
        results.method.name,
        results.method.rounds,
        float(mean_by(train, group)[plays].max()),
        float(np.nanmax(mean_by(train, school))),
        float(train.mean()),
        float(by_group.max()),
        tables.group_names[int(by_group.argmax())],
        float(test.mean()),
        proof.min_risk if proof else None,
        proof.players if proof else None,
        certificate_text(results) if proof else None,
    )


def read_run(folder: Path, name: str, seed: int) -> Run:
    """Measure both models of a run on its training and its held-out rows."""
    table = next(own for own in TABLES if name.startswith(own))
    model, _, compared = name.removeprefix(f"{table}-").partition("-")
    tables, pupil = load_rows(folder, table, model, seed)
    own = folder / "out" / name / f"seed-{seed}"
    after, group, school = errors_of(load_model(own), tables.test)
    before, _, _ = errors_of(load_model(own / "baseline"), tables.test)
    names = tables.group_names
    counts = np.bincount(group, minlength=len(names))
    small = finished_results(own).small_groups
    plays = np.array([group_name not in small for group_name in names])
    shown = plays & (counts >= MIN_ROWS)
    ours, baseline = (
        risks_of(
            place,
            tables,
            plays,
            np.where(shown, mean_by(errors, group, len(names)), -math.inf),
            errors,
        )
        for place, errors in ((own, after), (own / "baseline", before))
    )
    rows = Rows(after, before, group, pupil, school)
    worst = [group == names.index(risks.test_worst_group) for risks in (ours, baseline)]
    everybody = np.ones(len(pupil), dtype=bool)
    changes = {WORST: change_of(rows, *worst), ALL: change_of(rows, everybody, everybody)}
    for number in np.flatnonzero(shown).tolist():
        changes[names[number]] = change_of(rows, group == number, group == number)
    return Run(table, model, compared, seed, ours, baseline, changes)


def read_runs(folder: Path) -> list[Run]:
    """Read all finished runs, in the order of their tables, models and comparisons."""
    order = [
        f"{table}-{model}-{compared}"
        for table in TABLES
        for model in MODELS
        for compared in (*COMPARISONS, "minimax-mean-minimum-30")
    ]
    return [
        read_run(folder, name, int(done.parts[-3].removeprefix("seed-")))
        for name in order
        for done in sorted((folder / "out" / name).glob("seed-*/baseline/results.json"))
    ]


def change_words(changes: Sequence[Change]) -> str:
    """Say the mean change over seeds, the mean interval, and in how many seeds it excludes 0."""
    value, low, high = (
        fmean(getattr(own, key) for own in changes) for key in ("value", "low", "high")
    )
    lower, higher = (sum(own.high < 0 for own in changes), sum(own.low > 0 for own in changes))
    return f"{value:+.3g} ({low:+.3g} to {high:+.3g}); {lower} lower, {higher} higher"


def table_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Write the tables: risks by method, changes by comparison, changes by group."""
    for table in TABLES:
        own = [run for run in runs if run.table == table]
        yield from ("", f"## {table}", "", "Mean squared error, mean over seeds:", "")
        yield (
            "| model | method | rounds | worst group, training | proved: none below | "
            "worst school, training | worst group, test | all, test |"
        )
        yield "|---|---|---|---|---|---|---|---|"
        yield from _risk_lines(own)
        yield from ("", "Change on the same test rows, mean over seeds, mean 95% interval:", "")
        yield "| model | comparison | worst group | all rows |"
        yield "|---|---|---|---|"
        for model, compared in dict.fromkeys((run.model, run.compared) for run in own):
            same = [run for run in own if (run.model, run.compared) == (model, compared)]
            names = f"{same[0].ours.method} - {same[0].baseline.method}"
            minimum = ", minimum_size = 30" if compared.endswith("-30") else ""
            cells = [change_words([run.changes[key] for run in same]) for key in (WORST, ALL)]
            yield f"| {model} | {names}{minimum} | {' | '.join(cells)} |"
        yield from ("", "FedMinMaxFast - FedAvgFast by group:", "")
        yield "| group | test rows | linear | mlp |"
        yield "|---|---|---|---|"
        plain = [run for run in own if run.compared == "minimax-mean"]
        for group in dict.fromkeys(name for run in plain for name in run.changes):
            if group not in (WORST, ALL):
                told = {
                    model: [
                        run.changes[group]
                        for run in plain
                        if run.model == model and group in run.changes
                    ]
                    for model in MODELS
                }
                rows = fmean(change.rows for change in told["linear"])
                cells = [change_words(changes) for changes in told.values()]
                yield f"| {group} | {rows:,.0f} | {' | '.join(cells)} |"


def _risk_lines(runs: Sequence[Run]) -> Iterator[str]:
    plain = [run for run in runs if not run.compared.endswith("-30")]
    pairs = [
        (run.model, risks)
        for run in plain
        for risks in (run.ours, run.baseline)
        if (run.compared, risks.method) != ("minimax-afl", "FedMinMaxFast")
    ]
    for model, method in dict.fromkeys((model, risks.method) for model, risks in pairs):
        own = [risks for other, risks in pairs if (other, risks.method) == (model, method)]
        rounds = sorted({risks.rounds for risks in own})
        shown = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        lower = [risks.proved_lower for risks in own if risks.proved_lower is not None]
        whose = next((f" ({risks.proved_for})" for risks in own if risks.proved_for), "")
        cells = [
            f"{fmean(getattr(risks, key) for risks in own):.5g}"
            for key in ("train_worst", "train_worst_school", "test_worst", "test_mean")
        ]
        proved = f"{fmean(lower):.5g}{whose}" if lower else ""
        cells.insert(1, proved)
        yield f"| {model} | {method} | {shown} | {' | '.join(cells)} |"


def draw(runs: Sequence[Run], stem: Path) -> None:
    """Draw the change of each group against the plain model, with an interval for each seed."""
    with new_figure(11, 7) as figure:
        axes = figure.subplots(len(TABLES), len(MODELS), sharey="row", sharex="row")
        for line, table in zip(axes, TABLES, strict=True):
            for axis, model in zip(line, MODELS, strict=True):
                own = [
                    run
                    for run in runs
                    if (run.table, run.model, run.compared) == (table, model, "minimax-mean")
                ]
                groups = list(own[0].changes)
                for run in own:
                    places = np.arange(len(groups)) + 0.18 * (run.seed - 1)
                    told = [run.changes[group] for group in groups]
                    axis.errorbar(
                        [change.value for change in told],
                        places,
                        xerr=[change.value - change.low for change in told],
                        fmt="os^"[run.seed % 3],
                        markersize=3,
                        linewidth=1,
                        label=f"seed {run.seed}",
                    )
                axis.axvline(0, color="black", linewidth=0.8)
                axis.set_yticks(range(len(groups)), groups, fontsize=8)
                axis.set_title(f"{table}, {model}", fontsize=10)
                axis.spines[["top", "right"]].set_visible(False)
            line[0].invert_yaxis()
        for axis in axes[-1]:
            axis.set_xlabel("change in test squared error, FedMinMaxFast - FedAvgFast")
        axes[0][0].legend(frameon=False, fontsize=8)
        save_figure(figure, stem)


def main() -> None:
    """Read, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="tables, configurations and runs")
    parser.add_argument("--out", type=Path, required=True, help="where to write")
    options = parser.parse_args()
    runs = read_runs(options.folder)
    options.out.mkdir(parents=True, exist_ok=True)
    content = json.dumps([asdict(run) for run in runs], indent=1, allow_nan=False)
    write_text(options.out / "results.json", content + "\n")
    caveat = (
        "Written by experiments/schools/summary.py. Intervals take pupils as clusters; '2 lower' "
        "counts the seeds whose own interval lies below 0. Splits of different seeds share rows."
    )
    write_text(options.out / "table.md", "\n".join([caveat, *table_lines(runs)]) + "\n")
    draw(runs, options.out / "changes")


if __name__ == "__main__":
    main()
