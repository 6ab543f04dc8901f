"""The paper's Table 2 and its appendix table next to ours, as text, Markdown and JSON."""

from collections.abc import Sequence
from dataclasses import asdict

from fedminmax.data.fashion_mnist import GROUP_NAMES
from fedminmax.report.convergence_words import marked, notes_on_convergence
from fedminmax.report.fashion_results import FashionRow, GroupSpread
from fedminmax.report.markdown import markdown_table
from fedminmax.report.run_result import notes_on_fast, shown_words
from fedminmax.report.spread import Spread

TABLE_2_GROUPS = ("T-shirt", "Pullover", "Shirt")
TABLE_2_HEADERS = ("Setting", "Method", "", *TABLE_2_GROUPS, "from")
APPENDIX_HEADERS = ("Setting", "Method", "", *GROUP_NAMES)


def table_2_cells(rows: Sequence[FashionRow]) -> list[tuple[str, ...]]:
    """Format Table 2: the three groups that the paper calls the worst, and where ours is from."""
    return [
        (*cells, origin)
        for row in rows
        for cells, origin in zip(_two_lines(row, TABLE_2_GROUPS), (_origin(row), ""), strict=True)
    ]


def appendix_cells(rows: Sequence[FashionRow]) -> list[tuple[str, ...]]:
    """Format the appendix table: all groups."""
    return [cells for row in rows for cells in _two_lines(row, GROUP_NAMES)]


def _two_lines(row: FashionRow, groups: Sequence[str]) -> list[tuple[str, ...]]:
    """Format our risks, and the paper's below them."""
    chosen = [GROUP_NAMES.index(name) for name in groups]
    ours = [str(row.ours.risks[group]) for group in chosen]
    setting = "-" if row.setting == "centralized" else row.setting
    return [
        (setting, marked(row.label, converged=row.converged), "ours", *ours),
        ("", "", "paper", *(str(row.paper[group]) for group in chosen)),
    ]


def markdown_tables(rows: Sequence[FashionRow], notes: Sequence[str]) -> str:
    """Return both tables and the notes in Markdown."""
    parts = [
        "Test Brier risk, Table 2:",
        markdown_table(TABLE_2_HEADERS, table_2_cells(rows)),
        "All ten groups, appendix table:",
        markdown_table(APPENDIX_HEADERS, appendix_cells(rows)),
        *notes,
    ]
    return "\n\n".join(parts) + "\n"


def fashion_notes(rows: Sequence[FashionRow], details: Sequence[str], missing: int) -> list[str]:
    """What a reader must know to read the numbers."""
    folds = sorted({row.folds for row in rows}) or [0]
    counted = str(folds[0]) if len(folds) == 1 else f"{folds[0]} to {folds[-1]}"
    notes = [
        f"Brier risk (sum over classes) on all 10,000 test images, over {counted} fold(s).",
        "Each fold has its own initialisation, partition and choice of rows.",
        *details,
    ]
    shown: dict[str, list[str]] = {}
    for row in rows:
        word = shown_words(row.shown, row.rounds, row.chosen_rounds)
        names = shown.setdefault(word, [])
        alike = {(other.rounds, other.chosen_rounds) for other in rows if other.label == row.label}
        name = row.label if len(alike) == 1 else f"{row.label} in {row.setting}"
        if name not in names:
            names.append(name)
    if shown:
        words = "; ".join(f"{word} for {', '.join(names)}" for word, names in shown.items())
        notes.append(f"Shown: {words}.")
    notes += notes_on_fast(row.method for row in rows)
    if any(row.follows for row in rows):
        notes.append("Rows marked '= ...' were not run: they follow from that run by Lemma 2.")
    if missing:
        notes.append(f"{missing} run(s) of this call are not finished yet: call it again.")
    return [*notes, *notes_on_convergence([row.converged for row in rows])]


def fashion_rows_as_json(rows: Sequence[FashionRow]) -> list[dict[str, object]]:
    """Return the rows as plain data."""
    return [
        {
            "setting": row.setting,
            "method": row.method,
            "run": row.follows is None,
            "follows": row.follows,
            "folds": row.folds,
            "rounds_by_fold": row.rounds_by_fold,
            "gradient_evaluations_by_fold": row.evaluations_by_fold,
            "iterate": row.shown.replace(" ", "_"),
            "chosen_rounds": row.chosen_rounds,
            "scores": {name: _scores(one) for name, one in row.by_model.items()},
            "paper_risks": _by_group(row.paper),
            "converged": row.converged,
        }
        for row in rows
    ]


def _scores(one: GroupSpread) -> dict[str, object]:
    return {
        "worst_risk": asdict(one.worst),
        "best_risk": asdict(one.best),
        "mean_risk": asdict(one.mean),
        "mean_accuracy": asdict(one.mean_accuracy),
        "risks": _by_group(one.risks),
        "accuracies": _by_group(one.accuracies),
    }


def _by_group(values: Sequence[Spread]) -> dict[str, dict[str, float | None]]:
    return {name: asdict(one) for name, one in zip(GROUP_NAMES, values, strict=True)}


def _origin(row: FashionRow) -> str:
    return row.rounds if row.follows is None else f"= {row.follows}"
