"""The curves of a study: risks against rounds of all its runs, also of those not finished."""

from pathlib import Path

from fedminmax.core.iterates import Iterate
from fedminmax.federation.resumable import read_history
from fedminmax.report.rounds_figure import Curve
from fedminmax.report.run_result import GroupScores
from fedminmax.studies.scored_rounds import read_scored_rounds
from fedminmax.studies.study import RunPlan


def read_curves(folder: Path, plans: list[RunPlan]) -> dict[str, list[Curve]]:
    """Return test curves by iterate, and training curves, of the runs that have some."""
    panels: dict[str, list[Curve]] = {"training, last iterate": []}
    for plan in plans:
        own = folder / "runs" / plan.key
        history = read_history(own / "history.jsonl")
        if not history:
            continue
        panels["training, last iterate"].append(
            Curve(
                plan.setting,
                plan.method.name,
                tuple(point.round for point in history),
                tuple(GroupScores(point.risks) for point in history),
            )
        )
        scored = read_scored_rounds(own / "tests.jsonl")
        for which in Iterate:
            curves = panels.setdefault(f"test, {which.value.replace('_', ' ')} iterate", [])
            known = [point for point in scored if which in point.scores]
            if known:
                rounds = tuple(point.round for point in known)
                scores = tuple(point.scores[which] for point in known)
                curves.append(Curve(plan.setting, plan.method.name, rounds, scores))
    return {title: curves for title, curves in panels.items() if curves}
