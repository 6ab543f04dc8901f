"""Made-up runs that between them reach every branch of the pages; nothing is trained.

Each is a folder as `fedminmax train` leaves it, with numbers from formulas
(`tests.runs.run_folders`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedminmax.core.convergence import WITHIN_GAP
from tests.runs.run_folders import FALLING, judged, metric, write_run

THREE = ("women", "men", "nine people")
LOGISTIC: dict[str, Any] = {
    "model": {"kind": "logistic", "hidden": [], "members": 1},
    "loss": "cross_entropy",
}
CONVERGED = {
    "converged": True,
    "reason": WITHIN_GAP,
    "rounds": 100,
    "measure": "worst group's risk",
    "risk": 0.3,
    "remaining": 3e-9,
}
PRIVACY = {
    "epsilon": 2.0,
    "delta": 1e-5,
    "unit": "row",
    "clip": 1.0,
    "max_loss": 4.0,
    "colluding": 1,
    "releases": 41,
    "noise_multiplier": 12.34,
    "minimum_group": 120,
    "spent": 3.5,
}
STATED = (
    '[groups]\ncolumns = ["sex"]\n\n[report]\ntitle = "Follow-up visits"\n'
    'intended_use = "Whom to call first."\nnot_for = "Insurance."\n'
)


def measured(
    values: Mapping[str, Sequence[float | None]], rows: Sequence[int]
) -> dict[str, object]:
    """The section "test" of results.json with these metrics, of half widths 0.03 and 0.01."""
    groups = THREE[: len(rows)]
    halves = (0.03, 0.01, 0.2)[: len(rows)]
    metrics = {name: metric(found, halves, rows, groups) for name, found in values.items()}
    return {"rows": sum(rows), "confidence": 0.95, "min_rows": 50, "metrics": metrics}


def change_results(run: Path, **changed: object) -> None:
    """Change keys of a run's results.json."""
    path = run / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def certified(folder: Path) -> Path:
    """Three sites under secure aggregation: women gain, men do worse, and it is certified."""
    after = {"risk": (0.30, 0.24), "accuracy": (0.85, 0.88), "false_negative_rate": (0.2, 0.31)}
    before = {"risk": (0.40, 0.20), "accuracy": (0.80, 0.90), "false_negative_rate": (0.3, 0.2)}
    run = write_run(
        folder,
        site_names=("north", "south", "west"),
        census=((60, 240), (0, 500), (90, 160)),
        **LOGISTIC,
        convergence=CONVERGED,
        proof={"upper": 0.5207, "lower": 0.52069999, "penalty": 0.001, "ridge": 1e-4},
        gap_left=1e-9,
        test=measured(after, (150, 900)),
        reach={"weights": [0.5, 0.5], "distance": 0.2},
        cost={
            "bytes_down": 300,
            "bytes_up": 2_000,
            "usual_rounds": [8, 12],
            "counted_down": 310,
            "counted_up": 2_500,
        },
    )
    taken_part: list[dict[str, object]] = [
        {"site": name, "rounds": 100, "refused": {}} for name in ("north", "south", "west")
    ]
    change_results(run, sites=taken_part, secure_aggregation=3)
    change_results(run / "baseline", test=measured(before, (150, 900)))
    return judged(run)


def unclear(folder: Path) -> Path:
    """Nothing changed clearly, one group is too small, and validation chose the round."""
    risks = {"risk": (0.30, 0.24, 0.5), "accuracy": (0.85, 0.88, 0.6)}
    chosen = {"round": 40, "risk": 0.31, "standard_error": 0.02, "group": "women"}
    last = {"round": 100, "risk": 0.305, "standard_error": 0.021, "group": None}
    run = write_run(
        folder,
        before=(0.31, 0.24, 0.4),
        after=(0.30, 0.24, 0.5),
        halves=(0.03, 0.01, 0.2),
        rows=(150, 900, 9),
        groups=THREE,
        census=((60, 240, 9), (0, 500, 0)),
        small_groups=THREE[2:],
        iterate="best",
        validation={"rows": [40, 160, 3], "chosen": chosen, "last": last, "patience": 60},
        test=measured(risks, (150, 900, 9)),
        warnings=["north.csv: 2 rows are copies of others"],
        cost={"bytes_down": 300, "bytes_up": 2_000},
        reach={"weights": [0.2, 0.8, 0.0], "distance": 0.0},
    )
    before = {"risk": (0.305, 0.236, 0.4), "accuracy": (0.845, 0.882, 0.6)}
    change_results(run / "baseline", test=measured(before, (150, 900, 9)))
    return judged(run)


def unfinished(folder: Path) -> Path:
    """More rounds are needed, so that a difference is neither a gain nor a loss."""
    return write_run(folder, convergence=FALLING)


def private(folder: Path) -> Path:
    """One model without a baseline, with a privacy guarantee; each site keeps its own model."""
    rates = {"risk": (0.30, 0.24), "accuracy": (0.85, 0.88)}
    return write_run(
        folder,
        before=None,
        **LOGISTIC,
        convergence=None,
        privacy=PRIVACY,
        test=measured(rates, (150, 900)),
        personal=measured(rates, (150, 900)),
        merged={"groups": ["a", "b"], "test": measured(rates, (15, 9))},
    )


def numbers(folder: Path) -> Path:
    """A regression: how far predictions are off."""
    after = {"risk": (3000.0, 2100.0), "absolute_error": (30.0, 21.0)}
    before = {"risk": (4000.0, 2000.0), "absolute_error": (40.0, 20.0)}
    run = write_run(
        folder,
        before=(4000.0, 2000.0),
        after=(3000.0, 2100.0),
        halves=(100.0, 100.0),
        task="regression",
        loss="squared_error",
        classes=[],
        test=measured(after, (150, 900)),
    )
    change_results(run / "baseline", test=measured(before, (150, 900)))
    return judged(run)


RUNS = {
    "certified": certified,
    "unclear": unclear,
    "unfinished": unfinished,
    "private": private,
    "numbers": numbers,
}


def write_runs(folder: Path) -> dict[str, Path]:
    """Write all runs into a folder; the first has a configuration that states its use."""
    runs = {name: write(folder / name) for name, write in RUNS.items()}
    for path in folder.glob("**/rounds.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([lines[0], lines[49], lines[99]]))
    (runs["certified"] / "config.toml").write_text(STATED)
    return runs
