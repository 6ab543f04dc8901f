"""The synthetic study behind the paper's Table 1: its runs, and the paper's table next to ours.

It lists the runs and summarises the results per table row. The table is written as text, Markdown
and JSON.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass, replace

from experiments.paper.plans import (
    SAME_OBJECTIVE,
    PaperSettings,
    Selection,
    methods_of_paper,
    notes_on_fast,
    plan_runs,
    shown_text,
    with_fast_lines,
)
from fedminmax.core.iterates import Iterate
from fedminmax.data import synthetic
from fedminmax.findings.convergence import marked, notes_on_convergence
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.studies.scores import RunResult, Spread, all_converged, spread
from fedminmax.studies.study import RunPlan, StudyConfig, StudyMethod

HEADERS = (
    *("Setting", "Method", "Worst group", "paper", "opt.", "Best group", "paper", "opt."),
    "rounds",
)


def synthetic_methods(settings: PaperSettings) -> dict[str, StudyMethod]:
    """Return the methods of the table by their names on the command line."""
    mild = QFedAvg(
        0.2,
        learning_rate=settings.learning_rate,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
    )
    return methods_of_paper(settings, {"q-fedavg-0.2": mild, "q-fedavg-5": replace(mild, q=5.0)})


def synthetic_plans(
    config: StudyConfig, settings: PaperSettings, selection: Selection
) -> list[RunPlan]:
    """List the runs of this study."""
    methods = synthetic_methods(settings)
    return plan_runs(selection, methods, rows=config.rows, network=config.network)


@dataclass(frozen=True)
class TableRow:
    """One line of the table: our result, the paper's, and the analytic optimum.

    ``shown`` is the name of our answer; ``chosen_rounds`` has the round of each fold if validation
    rows chose it. ``paper_worst`` and ``paper_best`` are for the same objective.
    """

    setting: str
    method: str
    _: KW_ONLY
    folds: int
    worst: Spread
    best: Spread
    worst_by_iterate: dict[Iterate, Spread]
    best_by_iterate: dict[Iterate, Spread]
    shown: str
    chosen_rounds: tuple[int, ...]
    paper_worst: float | None
    paper_best: float | None
    optimum: synthetic.GroupRisks | None
    rounds: int
    gradient_evaluations: int
    step_factor: float | None
    converged: bool

    @property
    def excess(self) -> float | None:
        """Worst-group risk above the analytic optimum of what the method minimises."""
        return None if self.optimum is None else self.worst.mean - self.optimum.worst


# As printed in Papadaki et al. 2021, Table 1.
PAPER_TABLE_1: dict[tuple[str, str], tuple[float, float]] = {
    ("ESG", "AFL"): (0.485, 0.216),
    ("ESG", "FedAvg"): (0.487, 0.214),
    ("ESG", "q-FedAvg (q=0.2)"): (0.479, 0.22),
    ("ESG", "q-FedAvg (q=5)"): (0.478, 0.223),
    ("ESG", "FedMinMax"): (0.451, 0.31),
    ("SSG", "AFL"): (0.451, 0.31),
    ("SSG", "FedAvg"): (0.483, 0.219),
    ("SSG", "q-FedAvg (q=0.2)"): (0.476, 0.221),
    ("SSG", "q-FedAvg (q=5)"): (0.468, 0.274),
    ("SSG", "FedMinMax"): (0.451, 0.309),
    ("centralized", "FedMinMax"): (0.451, 0.308),
}
# Population optimum of each method's own objective: in ESG every site has the same risk, so
# all methods over sites minimise the mean; in SSG they see the groups.
OPTIMA: dict[tuple[str, str], synthetic.GroupRisks] = {
    ("ESG", "AFL"): synthetic.MEAN_RISKS,
    ("ESG", "FedAvg"): synthetic.MEAN_RISKS,
    ("ESG", "q-FedAvg (q=0.2)"): synthetic.MEAN_RISKS,
    ("ESG", "q-FedAvg (q=5)"): synthetic.MEAN_RISKS,
    ("ESG", "FedMinMax"): synthetic.MINIMAX_RISKS,
    ("SSG", "AFL"): synthetic.MINIMAX_RISKS,
    ("SSG", "FedAvg"): synthetic.MEAN_RISKS,
    ("SSG", "q-FedAvg (q=0.2)"): synthetic.qffl_risks(0.2),
    ("SSG", "q-FedAvg (q=5)"): synthetic.qffl_risks(5.0),
    ("SSG", "FedMinMax"): synthetic.MINIMAX_RISKS,
    ("centralized", "FedMinMax"): synthetic.MINIMAX_RISKS,
}


def summarise(results: Iterable[RunResult]) -> list[TableRow]:
    """Combine runs that differ only in their fold, in the order of the paper's table."""
    rows: dict[tuple[str, str], list[RunResult]] = {}
    for result in sorted(results, key=_place):
        rows.setdefault((result.setting, result.method), []).append(result)
    return [_row(key, runs) for key, runs in rows.items()]


def _row(key: tuple[str, str], runs: list[RunResult]) -> TableRow:
    tested = [which for which in Iterate if all(which in run.scores for run in runs)]
    objective = (key[0], SAME_OBJECTIVE.get(key[1], key[1]))
    paper = PAPER_TABLE_1.get(objective)
    factors = [r.step_factor for r in runs if r.step_factor is not None]
    return TableRow(
        setting=key[0],
        method=key[1],
        folds=len(runs),
        worst=spread([run.shown_scores.worst for run in runs]),
        best=spread([run.shown_scores.best for run in runs]),
        worst_by_iterate={
            which: spread([run.scores[which].worst for run in runs]) for which in tested
        },
        best_by_iterate={
            which: spread([run.scores[which].best for run in runs]) for which in tested
        },
        shown=runs[0].shown_name,
        chosen_rounds=tuple(run.chosen_round for run in runs if run.chosen_round is not None),
        paper_worst=paper[0] if paper else None,
        paper_best=paper[1] if paper else None,
        optimum=OPTIMA.get(objective),
        rounds=min(run.rounds for run in runs),
        gradient_evaluations=runs[0].gradient_evaluations,
        step_factor=min(factors) if factors else None,
        converged=all_converged(runs),
    )


def _place(result: RunResult) -> tuple[int, int]:
    return with_fast_lines(PAPER_TABLE_1).index((result.setting, result.method)), result.fold


def table_cells(rows: list[TableRow]) -> list[tuple[str, ...]]:
    """Format the rows for any kind of table."""
    return [
        (
            _labels(row)[0],
            marked(_labels(row)[1], converged=row.converged),
            str(row.worst),
            _number(row.paper_worst),
            _number(row.optimum.worst if row.optimum else None),
            str(row.best),
            _number(row.paper_best),
            _number(row.optimum.best if row.optimum else None),
            str(row.rounds),
        )
        for row in rows
    ]


def table_notes(rows: list[TableRow], folds_by: str, missing: int) -> list[str]:
    """Return what a reader must know to interpret the numbers; ``missing`` runs are unfinished."""
    counts = sorted({row.folds for row in rows}) or [0]
    folds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kinds = {
        "seeds": "each with its own training rows, partition and initialisation",
        "cross_validation": "parts of one training set, each with its own partition and "
        "initialisation",
    }
    notes = [
        f"Brier risk (sum over classes), mean±deviation over {folds} fold(s), {kinds[folds_by]}.",
        "Test risks are expectations: y integrated exactly, x over 20,000 quantiles of N(0, 1).",
        "opt.: analytic risk, in the population, of what the method minimises in its setting.",
        "Shown: "
        + "; ".join(f"{model} for {', '.join(methods)}" for model, methods in _shown(rows).items())
        + ".",
        *notes_on_fast(row.method for row in rows),
    ]
    if missing:
        notes.append(
            f"{missing} run(s) of this call are not finished and not in the table; run it again."
        )
    stalled = [row for row in rows if row.step_factor is not None and row.step_factor < 0.05]
    notes += [
        f"{row.setting} {row.method}: the curvature term cut its last step to "
        f"{row.step_factor:.3f} of plain averaging; it may be far from its optimum."
        for row in stalled
    ]
    return [*notes, *notes_on_convergence([row.converged for row in rows])]


def rows_as_json(rows: list[TableRow]) -> list[dict[str, object]]:
    """Return the rows as plain values, with the excess risk over the optimum."""
    return [
        {
            "setting": row.setting,
            "method": row.method,
            "folds": row.folds,
            "iterate": row.shown.replace(" ", "_"),
            "chosen_rounds": row.chosen_rounds,
            "worst": asdict(row.worst),
            "best": asdict(row.best),
            "worst_by_iterate": _by_name(row.worst_by_iterate),
            "best_by_iterate": _by_name(row.best_by_iterate),
            "paper_worst": row.paper_worst,
            "paper_best": row.paper_best,
            "optimum_worst": row.optimum.worst if row.optimum else None,
            "optimum_best": row.optimum.best if row.optimum else None,
            "excess_worst": row.excess,
            "rounds": row.rounds,
            "gradient_evaluations": row.gradient_evaluations,
            "step_factor": row.step_factor,
            "converged": row.converged,
        }
        for row in rows
    ]


def _labels(row: TableRow) -> tuple[str, str]:
    """Return setting and method; for FedMinMax with one site, the paper's name for it."""
    if row.setting == "centralized":
        return "-", "Centralized MinMax"
    return row.setting, row.method


def _shown(rows: list[TableRow]) -> dict[str, list[str]]:
    """Return the methods by the model that the table shows."""
    shown: dict[str, list[str]] = {}
    for row in rows:
        model = shown_text(row.shown, f"{row.rounds} rounds", row.chosen_rounds)
        methods = shown.setdefault(model, [])
        label = _labels(row)[1]
        alike = {other.chosen_rounds for other in rows if other.method == row.method}
        if len(alike) > 1:
            label = f"{label} in {row.setting}"
        if label not in methods:
            methods.append(label)
    return shown


def _by_name(spreads: dict[Iterate, Spread]) -> dict[str, dict[str, float | None]]:
    return {which.value: asdict(spread) for which, spread in spreads.items()}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
