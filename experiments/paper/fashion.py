"""The study on FashionMNIST behind the paper's Table 2 and its appendix table.

The study follows Papadaki et al. 2021, Section 6 and Appendix B. The paper does not give the number
of rounds, the CNN's channels (16 and 32) and head (one linear layer), the activation (ReLU) or the
pixels' scale (standardised by the training images' mean and deviation): these are our choices.
Results are shown next to the paper's, as text, Markdown and JSON.
"""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from statistics import fmean

from experiments.paper.fashion_mnist import GROUP_NAMES, FashionMnist, choose_rows
from experiments.paper.plans import (
    SAME_OBJECTIVE,
    PaperSettings,
    RoundsBetweenTests,
    Selection,
    methods_of_paper,
    notes_on_fast,
    plan_runs,
    shown_text,
    with_fast_lines,
)
from fedminmax.core.iterates import Iterate
from fedminmax.core.models import cnn
from fedminmax.core.text import markdown_table
from fedminmax.data.partition import Setting
from fedminmax.findings.convergence import marked, notes_on_convergence
from fedminmax.studies.scores import (
    GroupScores,
    RunResult,
    Spread,
    all_converged,
    score_by_group,
    spread,
)
from fedminmax.studies.study import CENTRALIZED, Length, RunPlan, Study, StudyConfig

# Testing the three iterates costs as much as two rounds over 6,000 rows.
BETWEEN_TESTS = RoundsBetweenTests(one_step=50, fast=10)
# Papadaki et al. 2021, Table 2 and the appendix table: Brier risk on the test images by group, mean
# and deviation over three folds. In the order of the groups' numbers, as printed.
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
TABLE_2_GROUPS = ("T-shirt", "Pullover", "Shirt")
TABLE_2_HEADERS = ("Setting", "Method", "", *TABLE_2_GROUPS, "from")
APPENDIX_HEADERS = ("Setting", "Method", "", *GROUP_NAMES)


def fashion_study(config: StudyConfig, data: FashionMnist) -> Study:
    """Return the study on these images, tested on all 10,000 test images."""
    first, second = config.widths
    return Study(
        config,
        GROUP_NAMES,
        rows_of_fold=lambda _, seed: choose_rows(data.train, config.rows, seed),
        new_model=lambda: cnn((1, 28, 28), len(GROUP_NAMES), (first, second)),
        scores=lambda model: score_by_group(model, data.test, len(GROUP_NAMES)),
    )


def fashion_plans(
    config: StudyConfig, settings: PaperSettings, selection: Selection
) -> list[RunPlan]:
    """List the runs of this study."""
    return plan_runs(
        selection,
        methods_of_paper(settings),
        rows=config.rows,
        network=True,
        between_tests=BETWEEN_TESTS,
    )


def plans_in(folder: Path, config: StudyConfig, settings: PaperSettings) -> list[RunPlan]:
    """List the started runs in a study's folder, including those of earlier and other calls."""
    started = {path.name for path in (folder / "runs").glob("*-fold-*")}
    folds = sorted({int(name.rsplit("-", 1)[-1]) for name in started})
    places = [*(setting.value for setting in Setting), CENTRALIZED]
    everything = Selection(places, list(methods_of_paper(settings)), folds, Length(1, 1))
    return [plan for plan in fashion_plans(config, settings, everything) if plan.key in started]


@dataclass(frozen=True)
class GroupSpread:
    """Risks and accuracies by group over folds, and their extremes within each fold."""

    risks: tuple[Spread, ...]
    accuracies: tuple[Spread, ...]
    _: KW_ONLY
    worst: Spread
    best: Spread
    mean: Spread
    mean_accuracy: Spread


@dataclass(frozen=True)
class FashionRow:
    """One line of the table: a setting and method, run here or following from another setting.

    ``ours`` are the scores of the answer, named ``shown``; ``chosen_rounds`` has the round of each
    fold if validation rows chose it. ``paper`` has the paper's risks for the same objective.
    """

    setting: str
    method: str
    _: KW_ONLY
    follows: str | None
    folds: int
    rounds_by_fold: tuple[int, ...]
    evaluations_by_fold: tuple[int, ...]
    shown: str
    ours: GroupSpread
    by_model: dict[str, GroupSpread]
    chosen_rounds: tuple[int, ...]
    paper: tuple[Spread, ...]
    converged: bool

    @property
    def rounds(self) -> str:
        """The number of rounds as text; folds may differ."""
        low, high = min(self.rounds_by_fold), max(self.rounds_by_fold)
        return f"{low} rounds" if low == high else f"{low} to {high} rounds"

    @property
    def label(self) -> str:
        """The method's name; for FedMinMax with one site, the paper's name for it."""
        return "Centralized MinMax" if self.setting == "centralized" else self.method


def summarise_fashion(
    results: Iterable[RunResult], one_trajectory: Sequence[str]
) -> list[FashionRow]:
    """Combine folds, in the paper's order.

    A setting of ``one_trajectory`` in which FedMinMax was not run gets the row of the first setting
    in which it was, marked as following from it.
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
    pairs = [entry.split("±") for entry in PAPER_APPENDIX[setting, objective].split()]
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


def table_2_cells(rows: Sequence[FashionRow]) -> list[tuple[str, ...]]:
    """Format Table 2: the three groups that the paper calls the worst, and the origin of ours."""
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
    """Return what a reader must know to interpret the numbers."""
    folds = sorted({row.folds for row in rows}) or [0]
    counted = str(folds[0]) if len(folds) == 1 else f"{folds[0]} to {folds[-1]}"
    notes = [
        f"Brier risk (sum over classes) on all 10,000 test images, over {counted} fold(s).",
        "Each fold has its own initialisation, partition and choice of rows.",
        *details,
    ]
    shown: dict[str, list[str]] = {}
    for row in rows:
        model = shown_text(row.shown, row.rounds, row.chosen_rounds)
        names = shown.setdefault(model, [])
        alike = {(other.rounds, other.chosen_rounds) for other in rows if other.label == row.label}
        name = row.label if len(alike) == 1 else f"{row.label} in {row.setting}"
        if name not in names:
            names.append(name)
    if shown:
        models = "; ".join(f"{model} for {', '.join(names)}" for model, names in shown.items())
        notes.append(f"Shown: {models}.")
    notes += notes_on_fast(row.method for row in rows)
    if any(row.follows for row in rows):
        notes.append("Rows marked '= ...' were not run: they follow from that run by Lemma 2.")
    if missing:
        notes.append(f"{missing} run(s) of this call are not finished: run it again.")
    return [*notes, *notes_on_convergence([row.converged for row in rows])]


def fashion_rows_as_json(rows: Sequence[FashionRow]) -> list[dict[str, object]]:
    """Return the rows as plain values."""
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
