"""The paper's Table 1 next to ours, as text, Markdown and JSON."""

from dataclasses import asdict

from fedminmax.core.iterates import Iterate
from fedminmax.report.convergence_words import marked, notes_on_convergence
from fedminmax.report.run_result import notes_on_fast, shown_words
from fedminmax.report.spread import Spread
from fedminmax.report.synthetic_results import TableRow

HEADERS = (
    *("Setting", "Method", "Worst group", "paper", "opt.", "Best group", "paper", "opt."),
    "rounds",
)


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
    """What a reader must know to read the numbers; ``missing`` runs are not finished yet."""
    counts = sorted({row.folds for row in rows}) or [0]
    folds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kinds = {
        "seeds": "each with its own training rows, partition and initialisation",
        "cross-validation": "parts of one training set, with own partition and initialisation",
    }
    notes = [
        f"Brier risk (sum over classes), mean±deviation over {folds} fold(s), {kinds[folds_by]}.",
        "Test risks are expectations: y integrated exactly, x over 20,000 quantiles of N(0, 1).",
        "opt.: analytic risk, in the population, of what the method minimises in its setting.",
        "Shown: "
        + "; ".join(f"{words} for {', '.join(methods)}" for words, methods in _shown(rows).items())
        + ".",
        *notes_on_fast(row.method for row in rows),
    ]
    if missing:
        notes.append(
            f"{missing} run(s) of this call are not finished and not in the table; call it again."
        )
    stalled = [row for row in rows if row.step_factor is not None and row.step_factor < 0.05]
    notes += [
        f"{row.setting} {row.method}: the curvature term cut its last step to "
        f"{row.step_factor:.3f} of plain averaging; it may be far from its optimum."
        for row in stalled
    ]
    return [*notes, *notes_on_convergence([row.converged for row in rows])]


def rows_as_json(rows: list[TableRow]) -> list[dict[str, object]]:
    """Return the rows as plain data, with the excess risk over the optimum."""
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
    """Setting and method; FedMinMax with one holder goes by the paper's name for it."""
    if row.setting == "centralized":
        return "-", "Centralized MinMax"
    return row.setting, row.method


def _shown(rows: list[TableRow]) -> dict[str, list[str]]:
    """Methods by the model that the table shows."""
    shown: dict[str, list[str]] = {}
    for row in rows:
        words = shown_words(row.shown, f"{row.rounds} rounds", row.chosen_rounds)
        methods = shown.setdefault(words, [])
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
