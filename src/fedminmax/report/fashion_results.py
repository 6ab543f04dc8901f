"""Results on FashionMNIST: summaries per table row, next to the paper's.

The printed numbers are those of Papadaki et al. 2021, Table 2 and the appendix table: Brier risk
on the test images by group, mean and deviation over three folds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedminmax.core.iterates import Iterate
from fedminmax.report.run_result import (
    SAME_OBJECTIVE,
    GroupScores,
    RunResult,
    all_converged,
    with_fast_lines,
)
from fedminmax.report.spread import Spread, spread

# In the order of the groups' numbers, as printed.
PAPER_APPENDIX = {
    ("ESG", "AFL"): (
        "0.239±0.003 0.046±0.0 0.262±0.001 0.159±0.001 0.252±0.004 "
        "0.06±0.0 0.494±0.004 0.067±0.001 0.049±0.0 0.07±0.001"
    ),
    ("ESG", "FedAvg"): (
        "0.243±0.003 0.046±0.0 0.262±0.001 0.158±0.003 0.253±0.002 "
        "0.061±0.0 0.492±0.003 0.068±0.0 0.049±0.0 0.069±0.0"
    ),
    ("ESG", "FedMinMax"): (
        "0.261±0.006 0.191±0.016 0.256±0.027 0.217±0.013 0.223±0.031 "
        "0.207±0.027 0.307±0.01 0.172±0.016 0.193±0.021 0.156±0.011"
    ),
    ("SSG", "AFL"): (
        "0.267±0.009 0.194±0.023 0.236±0.013 0.226±0.012 0.262±0.012 "
        "0.201±0.026 0.307±0.003 0.178±0.033 0.205±0.025 0.162±0.021"
    ),
    ("SSG", "FedAvg"): (
        "0.227±0.003 0.039±0.001 0.236±0.004 0.143±0.003 0.232±0.003 "
        "0.051±0.001 0.463±0.003 0.067±0.0 0.041±0.0 0.063±0.001"
    ),
    ("SSG", "FedMinMax"): (
        "0.269±0.012 0.2±0.026 0.238±0.017 0.231±0.013 0.252±0.034 "
        "0.2±0.024 0.309±0.011 0.177±0.03 0.205±0.032 0.169±0.013"
    ),
    ("PSG", "AFL"): (
        "0.244±0.007 0.032±0.001 0.257±0.066 0.122±0.006 0.209±0.098 "
        "0.045±0.002 0.425±0.019 0.059±0.001 0.041±0.001 0.062±0.001"
    ),
    ("PSG", "FedAvg"): (
        "0.229±0.008 0.039±0.0 0.236±0.004 0.142±0.002 0.232±0.003 "
        "0.052±0.001 0.464±0.011 0.067±0.001 0.042±0.001 0.063±0.001"
    ),
    ("PSG", "FedMinMax"): (
        "0.263±0.013 0.177±0.026 0.228±0.011 0.21±0.019 0.238±0.025 "
        "0.182±0.03 0.31±0.008 0.16±0.027 0.184±0.031 0.154±0.018"
    ),
    ("centralized", "FedMinMax"): (
        "0.259±0.01 0.173±0.015 0.239±0.051 0.213±0.008 0.24±0.063 "
        "0.182±0.024 0.311±0.006 0.168±0.018 0.18±0.013 0.151±0.012"
    ),
}


@dataclass(frozen=True)
class GroupSpread:
    """Risks and accuracies by group over folds, and their extremes within each fold."""

    risks: tuple[Spread, ...]
    accuracies: tuple[Spread, ...]
    worst: Spread
    best: Spread
    mean: Spread
    mean_accuracy: Spread


@dataclass(frozen=True)
class FashionRow:
    """One line of the table: a setting and method, run here or following from another setting.

    ``ours`` are the scores of the answer, which is called ``shown``; ``chosen_rounds`` has the
    round of each fold if validation rows chose it. ``paper`` is of the same objective.
    """

    setting: str
    method: str
    follows: str | None
    folds: int
    rounds_by_fold: tuple[int, ...]
    evaluations_by_fold: tuple[int, ...]
    shown: str
    ours: GroupSpread
    by_model: dict[str, GroupSpread]
    chosen_rounds: tuple[int, ...]
    paper: tuple[Spread, ...]
    converged: bool | None

    @property
    def rounds(self) -> str:
        """How many rounds, in words: folds may have got differently far."""
        fewest, most = min(self.rounds_by_fold), max(self.rounds_by_fold)
        return f"{fewest} rounds" if fewest == most else f"{fewest} to {most} rounds"

    @property
    def label(self) -> str:
        """The method's name; FedMinMax with one holder goes by the paper's name for it."""
        return "Centralized MinMax" if self.setting == "centralized" else self.method


def summarise_fashion(
    results: Iterable[RunResult], one_trajectory: Sequence[str]
) -> list[FashionRow]:
    """Put folds together in the paper's order.

    A setting of ``one_trajectory`` in which FedMinMax was not run gets the row of the first one in
    which it was, marked as following from it.
    """
    runs: dict[tuple[str, str], list[RunResult]] = {}
    for result in sorted(results, key=lambda result: result.fold):
        runs.setdefault((result.setting, result.method), []).append(result)
    source = next((one for one in one_trajectory if (one, "FedMinMax") in runs), None)
    rows = []
    for setting, method in with_fast_lines(PAPER_APPENDIX):
        own = runs.get((setting, method))
        if own:
            rows.append(_row(setting, method, own, None))
        elif method == "FedMinMax" and source and setting in one_trajectory:
            rows.append(_row(setting, method, runs[source, method], source))
    return rows


def paper_risks(setting: str, method: str) -> tuple[Spread, ...]:
    """Return the paper's mean and deviation for each group, of the method's objective."""
    objective = SAME_OBJECTIVE.get(method, method)
    pairs = [word.split("±") for word in PAPER_APPENDIX[setting, objective].split()]
    return tuple(Spread(float(mean), float(deviation)) for mean, deviation in pairs)


def _row(setting: str, method: str, runs: list[RunResult], follows: str | None) -> FashionRow:
    return FashionRow(
        setting=setting,
        method=method,
        follows=follows,
        folds=len(runs),
        rounds_by_fold=tuple(run.rounds for run in runs),
        evaluations_by_fold=tuple(run.gradient_evaluations for run in runs),
        shown=runs[0].shown_name,
        ours=_spread([run.shown_scores for run in runs]),
        by_model=_by_model(runs),
        chosen_rounds=tuple(run.chosen_round for run in runs if run.chosen_round is not None),
        paper=paper_risks(setting, method),
        converged=all_converged(runs),
    )


def _by_model(runs: list[RunResult]) -> dict[str, GroupSpread]:
    """Return the scores of all iterates, and of the method's own choice if it makes one."""
    found = {
        which.value: _spread([run.scores[which] for run in runs])
        for which in Iterate
        if all(which in run.scores for run in runs)
    }
    chosen = [run.chosen for run in runs if run.chosen is not None]
    return found | ({"chosen": _spread(chosen)} if chosen else {})


def _spread(scores: list[GroupScores]) -> GroupSpread:
    by_fold = list(zip(*(one.risks for one in scores), strict=True))
    accuracy_by_fold = list(zip(*(one.accuracies for one in scores), strict=True))
    return GroupSpread(
        risks=tuple(spread(values) for values in by_fold),
        accuracies=tuple(spread(values) for values in accuracy_by_fold),
        worst=spread([one.worst for one in scores]),
        best=spread([one.best for one in scores]),
        mean=spread([one.mean for one in scores]),
        mean_accuracy=spread([fmean(one.accuracies) for one in scores]),
    )
