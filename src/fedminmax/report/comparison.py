"""The table of a comparison: risks over groups, parity, rounds and cost, over seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from fedminmax.core.counted import counted
from fedminmax.report.convergence_words import marked
from fedminmax.report.run_result import GroupScores, RunResult, all_converged
from fedminmax.report.spread import Spread, spread

HEADERS = (
    "setting",
    "method",
    "worst",
    "best",
    "mean",
    "gap",
    "rounds",
    "gradients",
    "worst group",
    "parity gap",
    "opportunity gap",
    "model",
)


@dataclass(frozen=True)
class ComparisonRow:
    """One method in one setting, over seeds; gaps of rates only where labels have two classes."""

    setting: str
    method: str
    seeds: int
    worst: Spread
    best: Spread
    mean: Spread
    gap: Spread
    worst_group: str
    parity_gap: Spread | None
    opportunity_gap: Spread | None
    risks: dict[str, Spread]
    rounds: int
    gradient_evaluations: int
    model: str
    converged: bool | None


def summarise_comparison(
    results: Iterable[RunResult], settings: Sequence[str], methods: Sequence[str]
) -> list[ComparisonRow]:
    """Put runs that differ only in their seed together, in the order asked for.

    A method whose holders keep models of their own has a second line for those.
    """
    runs: dict[tuple[str, str], list[RunResult]] = {}
    for result in results:
        runs.setdefault((result.setting, result.method), []).append(result)
    rows = []
    for setting in settings:
        for method in methods:
            own = runs.get((setting, method), [])
            if own:
                rows.append(_row(own, [run.shown_scores for run in own], own[0].shown_name))
            personal = [run.personal for run in own if run.personal]
            if personal:
                rows.append(_row(own, personal, "personal"))
    return rows


def _row(runs: list[RunResult], scores: list[GroupScores], model: str) -> ComparisonRow:
    first = runs[0]

    def over_seeds(value: Callable[[GroupScores], float]) -> Spread:
        return spread([value(one) for one in scores])

    risks = {
        name: spread([one.risks[number] for one in scores])
        for number, name in enumerate(first.groups)
    }
    two_classes = bool(scores[0].positive_rates)
    return ComparisonRow(
        setting=first.setting,
        method=first.method,
        seeds=len(runs),
        worst=over_seeds(lambda one: one.worst),
        best=over_seeds(lambda one: one.best),
        mean=over_seeds(lambda one: one.mean),
        gap=over_seeds(lambda one: one.gap),
        worst_group=max(risks, key=lambda name: risks[name].mean),
        parity_gap=over_seeds(lambda one: _range(one.positive_rates)) if two_classes else None,
        opportunity_gap=over_seeds(lambda one: _range(one.true_positive_rates))
        if two_classes
        else None,
        risks=risks,
        rounds=min(run.rounds for run in runs),
        gradient_evaluations=first.gradient_evaluations,
        model=model,
        converged=all_converged(runs),
    )


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)


def comparison_cells(rows: Sequence[ComparisonRow]) -> list[tuple[str, ...]]:
    """Return the table's cells as text."""
    return [
        (
            row.setting,
            marked(row.method, converged=row.converged),
            *map(str, (row.worst, row.best, row.mean, row.gap)),
            f"{row.rounds:,}",
            f"{row.gradient_evaluations:.2g}",
            row.worst_group,
            *("" if one is None else str(one) for one in (row.parity_gap, row.opportunity_gap)),
            row.model,
        )
        for row in rows
    ]


def comparison_notes(failures: Sequence[str], seeds: int, missing: int) -> list[str]:
    """Say what the columns are, and what is not in the table."""
    notes = [
        (
            "Test Brier risk by group: worst, best, mean over groups, worst minus best. "
            "Gradients: of one row's loss, all rounds together. Parity gap: largest difference "
            "between groups in the rate of answers 1; opportunity gap: the same among labels 1. "
            "Model: which iterate is shown; best: that of the round that validation rows chose; "
            "chosen: the method's own choice (for a mixture the mean over its members); personal: "
            "each holder's own model on its share of the rows."
        )
    ]
    if seeds > 1:
        notes.append(
            f"Mean and deviation over {counted(seeds, 'seed')} (rows, partition, start, training)."
        )
    if missing:
        notes.append(
            f"{counted(missing, 'run is', 'runs are')} not finished; call the same command again "
            "to go on."
        )
    return [*notes, *failures]


def comparison_as_json(rows: Sequence[ComparisonRow]) -> list[dict[str, object]]:
    """Return the rows as plain data."""
    return [asdict(row) for row in rows]
