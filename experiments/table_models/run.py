"""Measure every model on every table, with five seeds each.

    pip install -r experiments/table_models/requirements.txt
    python -m experiments.table_models.run --data FOLDER

writes ``risks.jsonl`` beside this file, a line per table, seed and model, and goes on where it
stopped. FOLDER has the tables that do not come with the package (``tables.py``).
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.table_models.measures import RESULTS, SEEDS, risks_of, split
from experiments.table_models.ours import KINDS, WITH_SITE, train_ours
from experiments.table_models.peers import PEERS
from experiments.table_models.tables import NAMES, Problem, table

# EBM takes half a minute for 600 records.
ONLY = {"EBM": {"adult", "heart"}}


def measured(problem: Problem, name: str, model: str, seed: int) -> Iterator[dict[str, Any]]:
    """Train one model (one of ours: with its baseline) and yield a line for each."""
    train, test = split(problem, seed)
    about = {"table": name, "seed": seed}
    if model in PEERS:
        start = time.perf_counter()
        answers = PEERS[model](problem, train, test, seed)
        seconds = round(time.perf_counter() - start, 3)
        risks = risks_of(problem, train, test, answers).as_json()
        yield about | {"model": model, "seconds": seconds} | risks
        return
    for trained in train_ours(problem, model, train, test, seed):
        risks = risks_of(problem, train, test, trained.answers).as_json()
        yield about | {"model": trained.name} | trained.about | risks


def is_wanted(problem: Problem, name: str, model: str) -> bool:
    """Whether this model is measured on this table."""
    if model in ("each site alone", WITH_SITE):
        return problem.real_sites
    return name in ONLY.get(model, NAMES)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs and heart")
    parser.add_argument("--tables", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--models", nargs="+", default=[*PEERS, *KINDS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    done = {tuple(json.loads(line)[key] for key in ("table", "seed", "model")) for line in lines}
    with options.out.open("a", encoding="utf-8") as out:
        for name in options.tables:
            for seed in range(SEEDS):
                problem = table(name, seed, options.data)
                for model in options.models:
                    if (name, seed, model) in done or not is_wanted(problem, name, model):
                        continue
                    for entry in measured(problem, name, model, seed):
                        print(json.dumps(entry), file=out, flush=True)


if __name__ == "__main__":
    main()
