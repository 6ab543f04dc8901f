"""Results of the synthetic experiment: summaries per table row.

The printed numbers are those of Papadaki et al. 2021, Table 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fedminmax.core.iterates import Iterate
from fedminmax.data.synthetic import MEAN_RISKS, MINIMAX_RISKS, GroupRisks, qffl_risks
from fedminmax.report.run_result import (
    SAME_OBJECTIVE,
    RunResult,
    all_converged,
    with_fast_lines,
)
from fedminmax.report.spread import Spread, spread


@dataclass(frozen=True)
class TableRow:
    """One line of the table: ours, the paper's, and the analytic optimum that applies.

    ``shown`` is what our answer is called; ``chosen_rounds`` has the round of each fold if
    validation rows chose it. ``paper_worst`` and ``paper_best`` are of the same objective.
    """

    setting: str
    method: str
    folds: int
    worst: Spread
    best: Spread
    worst_by_iterate: dict[Iterate, Spread]
    best_by_iterate: dict[Iterate, Spread]
    shown: str
    chosen_rounds: tuple[int, ...]
    paper_worst: float | None
    paper_best: float | None
    optimum: GroupRisks | None
    rounds: int
    gradient_evaluations: int
    step_factor: float | None
    converged: bool | None

    @property
    def excess(self) -> float | None:
        """Worst-group risk above the analytic optimum of what the method minimises."""
        return None if self.optimum is None else self.worst.mean - self.optimum.worst


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

# Population optimum of each method's own objective: in ESG every holder has the same risk, so
# all methods over holders minimise the mean; in SSG they see the groups.
OPTIMA: dict[tuple[str, str], GroupRisks] = {
    ("ESG", "AFL"): MEAN_RISKS,
    ("ESG", "FedAvg"): MEAN_RISKS,
    ("ESG", "q-FedAvg (q=0.2)"): MEAN_RISKS,
    ("ESG", "q-FedAvg (q=5)"): MEAN_RISKS,
    ("ESG", "FedMinMax"): MINIMAX_RISKS,
    ("SSG", "AFL"): MINIMAX_RISKS,
    ("SSG", "FedAvg"): MEAN_RISKS,
    ("SSG", "q-FedAvg (q=0.2)"): qffl_risks(0.2),
    ("SSG", "q-FedAvg (q=5)"): qffl_risks(5.0),
    ("SSG", "FedMinMax"): MINIMAX_RISKS,
    ("centralized", "FedMinMax"): MINIMAX_RISKS,
}


def summarise(results: Iterable[RunResult]) -> list[TableRow]:
    """Put runs that differ only in their fold together, in the order of the paper's table."""
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
