"""Train on two federations that nobody made up: 19 states, and four hospitals.

    pip install -r experiments/table_models/requirements.txt
    python -m experiments.real_sites.run --data FOLDER

writes ``risks.jsonl`` beside this file, a line per table, seed and model, and goes on where it
stopped; ``summary`` puts the lines together. Tables, splits (30% of the records are tested on) and
peers are those of ``experiments.table_models``; of the hearts, groups are the sexes. Every test
record counts for its group and for its site.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from experiments.table_models.measures import LEAST_RECORDS, split
from experiments.table_models.ours import ADDITIVE, configuration
from experiments.table_models.peers import PEERS
from experiments.table_models.tables import Problem, acs, heart
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.runs.folder import BASELINE_FOLDER
from fedminmax.runs.frontier import model_of_point, read_frontier
from fedminmax.runs.train import train_tables

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
RESULTS = Path(__file__).with_name("risks.jsonl")
TABLES = {"acs": acs, "heart": heart}
PLAIN = "plain"
# Each model of the frontier is named by the share that every group keeps as weight.
FRONTIER, KEPT = "frontier", "frontier, kept share "
# By name: the lines of [method]. The first one's baseline is the plain model.
OURS = {
    "default": "",
    "exact minimax": "tolerance = 0.0",
    "worst site": 'name = "afl-fast"',
    "worst half": 'name = "fedsrcvar"\nshare = 0.5',
    FRONTIER: "frontier = true",
}
MODELS = (*OURS, "LightGBM, 400 trees", "each site alone")


@dataclass(frozen=True, eq=False)
class Answers:
    """A model's probabilities for the test records, and what is said about its training."""

    name: str
    chances: Numbers
    about: dict[str, Any]


def problem_of(name: str, folder: Path) -> Problem:
    """Return a table; the groups of the hearts are the sexes alone."""
    problem = TABLES[name](folder)
    if name == "acs":
        return problem
    sex = pl.col("group").str.split(" / ").list.first()
    return replace(problem, frame=problem.frame.with_columns(group=sex))


def trained(
    problem: Problem, name: str, train: Positions, test: Positions, seed: int
) -> Iterator[Answers]:
    """Train one of ours; the default with its baseline."""
    text = configuration(problem, ADDITIVE, seed) + f"[method]\n{OURS[name]}\n"
    if name != "default":
        text += 'baseline = "none"\n'
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        problem.frame[train].write_csv(folder / "train.csv")
        (folder / "fedminmax.toml").write_text(text, encoding="utf-8")
        start = time.perf_counter()
        done = train_tables(folder / "fedminmax.toml", folder=folder / "run")
        about = {
            "seconds": round(time.perf_counter() - start, 2),
            "rounds": done.results.method.rounds,
            "gap": done.results.gap_left,
        }
        if name == FRONTIER:
            yield from _frontier(folder / "run", problem, test)
        yield Answers(name, _chances(done.model, problem, test), about)
        if name == "default":
            plain = load_model(folder / "run" / BASELINE_FOLDER)
            yield Answers(PLAIN, _chances(plain, problem, test), {})


def _frontier(run: Path, problem: Problem, test: Positions) -> Iterator[Answers]:
    """Return what each point predicts, except for the recommended one, which is the run's."""
    found = read_frontier(run)
    for point in found.points:
        if point.number != found.recommended:
            saved = load_model(model_of_point(run, point.number))
            proved = {"training_mean": point.mean, "training_worst": point.worst, "gap": point.gap}
            name = f"{KEPT}{point.keep_share:.3g}"
            yield Answers(name, _chances(saved, problem, test), proved)


def _chances(model: SavedModel, problem: Problem, test: Positions) -> Numbers:
    return np.asarray(model.predict_proba(problem.frame[test].drop("target"))[:, 1], np.float64)


def measured(problem: Problem, test: Positions, answers: Answers) -> dict[str, Any]:
    """Return Brier scores (sum over classes) of all, by group and by site, and the AUROC."""
    y = problem.target[test]
    errors = 2 * (answers.chances - y) ** 2
    by = {part: _means(errors, problem.frame[part].to_numpy()[test]) for part in ("group", "site")}
    return {
        "model": answers.name,
        "mean": round(float(errors.mean()), 5),
        "worst_group": max(by["group"].values()),
        "worst_site": max(by["site"].values()),
        "auroc": round(float(roc_auc_score(y, answers.chances)), 5),
        "by_group": by["group"],
        "by_site": by["site"],
        **answers.about,
    }


def _means(errors: Numbers, part: NDArray[np.object_]) -> dict[str, float]:
    """Return the mean of each part that has enough records to say something."""
    names, counts = np.unique(part.astype(str), return_counts=True)
    return {
        str(name): round(float(errors[part == name].mean()), 5)
        for name, count in zip(names, counts, strict=True)
        if count >= LEAST_RECORDS
    }


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs and heart")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    known = {tuple(json.loads(line)[key] for key in ("table", "seed", "model")) for line in lines}
    for name in options.tables:
        problem = problem_of(name, options.data)
        for seed in options.seeds:
            train, test = split(problem, seed)
            for model in options.models:
                if (name, seed, model) in known:
                    continue
                for answers in _answers(problem, model, train, test, seed):
                    line = {"table": name, "seed": seed} | measured(problem, test, answers)
                    with options.out.open("a", encoding="utf-8") as out:
                        print(json.dumps(line), file=out)


def _answers(
    problem: Problem, model: str, train: Positions, test: Positions, seed: int
) -> Iterator[Answers]:
    if model in OURS:
        yield from trained(problem, model, train, test, seed)
    else:
        yield Answers(model, PEERS[model](problem, train, test, seed), {})


if __name__ == "__main__":
    main()
