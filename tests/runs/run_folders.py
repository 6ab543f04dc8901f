"""Run folders as `fedminmax train` leaves them, with numbers that are made up by formulas."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedminmax.findings.records import Results, record_as_json
from fedminmax.findings.verdict import judge
from fedminmax.metrics.intervals import MIN_ROWS

GROUPS = ("women", "men")
SITES = ("north", "south")
CENSUS = ((60, 240), (0, 500))
CONFIG = '[data]\ntarget = "ill"\n\n[method]\nname = "fedminmax"\n'
CONVERGED = {
    "converged": True,
    "reason": "converged",
    "rounds": 100,
    "measure": "worst group's risk",
    "risk": 0.3,
    "slope": -1e-8,
    "remaining": 1e-6,
    "weights_gap": None,
    "rounds_needed": None,
}
FALLING = CONVERGED | {
    "converged": False,
    "reason": "falling",
    "slope": -3e-4,
    "remaining": 0.036,
    "rounds_needed": 1600,
}


def interval(value: float | None, half: float, **more: int) -> dict[str, float | None]:
    """A value in the middle of its interval; nothing has no interval."""
    ends = (None, None) if value is None else (value - half, value + half)
    return {"value": value, "low": ends[0], "high": ends[1], **more}


def metric(
    values: Sequence[float | None],
    halves: Sequence[float],
    rows: Sequence[int],
    groups: Sequence[str],
) -> dict[str, object]:
    """One metric of results.json, in which the highest value is the worst."""
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    enough = [(value, place) for value, place in known if rows[place] >= MIN_ROWS]
    judged = sorted((value, halves[place]) for value, place in enough)
    compared = len(judged) > 1
    between = math.hypot(judged[0][1], judged[-1][1]) if compared else 0.0
    has_worst = compared or len(judged) == sum(count > 0 for count in rows)
    mean = sum(value * rows[place] for value, place in known) / sum(rows[p] for _, p in known)
    return {
        "overall": interval(mean, min(halves)),
        "by_group": [
            interval(value, half, rows=count)
            for value, half, count in zip(values, halves, rows, strict=True)
        ],
        "worst_group": groups[max(enough)[1]] if has_worst else None,
        "difference": interval(judged[-1][0] - judged[0][0] if compared else None, between),
        "worst": interval(*judged[-1]) if has_worst else None,
    }


def results(
    name: str,
    risks: Sequence[float | None],
    halves: Sequence[float],
    rows: Sequence[int],
    groups: Sequence[str],
    **changed: object,
) -> dict[str, object]:
    """results.json of a classifier."""
    accuracies = [None if risk is None else 1 - risk / 2 for risk in risks]
    return {
        "format": 1,
        "method": {
            "key": name.lower(),
            "name": name,
            "options": {"learning_rate": 0.1, "hidden": [8, 4], "floor": None},
            "rounds": 100,
        },
        "task": "classification",
        "target": "outcome",
        "model": {"kind": "mlp", "hidden": [8], "members": 1},
        "loss": "brier",
        "iterate": "tail_average",
        "classes": ["no", "yes"],
        "groups": list(groups),
        "seed": 0,
        "seconds": 75.0,
        "finished": "2026-11-17",
        "gradient_evaluations": 12_345,
        "convergence": CONVERGED,
        "test": {
            "rows": sum(rows),
            "confidence": 0.9,
            "min_rows": MIN_ROWS,
            "metrics": {
                "risk": metric(risks, halves, rows, groups),
                "accuracy": metric(accuracies, halves, rows, groups),
            },
        },
        "notes": ["Held out: 20% of each site."],
        "warnings": [],
    } | changed


def change_of(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The section "change", as if both models had been measured on different records."""
    values, old = after["test"]["metrics"], before["test"]["metrics"]

    def differ(one: dict[str, Any], other: dict[str, Any], **rows: int) -> dict[str, Any]:
        if one["value"] is None:
            return one
        half = math.hypot(one["high"] - one["value"], other["high"] - other["value"])
        return interval(
            one["value"] - other["value"], half, **({"rows": one.get("rows", 0)} | rows)
        )

    metrics = {
        name: {
            "overall": differ(
                values[name]["overall"], old[name]["overall"], rows=after["test"]["rows"]
            ),
            "by_group": list(map(differ, values[name]["by_group"], old[name]["by_group"])),
            "worst": differ(*(one["worst"] or one["overall"] for one in (values[name], old[name]))),
        }
        for name in values
    }
    method, state = before["method"], before["convergence"]
    baseline = {name: method[name] for name in ("key", "name", "rounds")}
    baseline["converged"] = state and state["converged"]
    return {"baseline": baseline, "min_rows": MIN_ROWS, "comparisons": 6, "metrics": metrics}


def judged(folder: Path, **changed: object) -> Path:
    """Change a run's results.json and judge it, against the baseline as it is now."""
    path, baseline = folder / "results.json", folder / "baseline" / "results.json"
    content = json.loads(path.read_text()) | changed
    if baseline.is_file() and "change" not in changed:
        content["change"] = change_of(content, json.loads(baseline.read_text()))
    verdict = judge(Results.model_validate(content))
    path.write_text(json.dumps(content | {"verdict": record_as_json(verdict)}))
    return folder


def round_lines(
    risks: Sequence[float | None], *, weights_over: str, sizes: int, rounds: int = 100
) -> str:
    """rounds.jsonl: risks that fall to these, weights that move towards the first."""
    lines = []
    for number in range(1, rounds + 1):
        left = math.exp(-6 * number / rounds)
        first = 0.5 - 0.3 * left
        weights = (
            [first, *[(1 - first) / (sizes - 1)] * (sizes - 1)] if sizes > 1 else [1.0] * sizes
        )
        lines.append(
            {
                "round": number,
                "seconds": 0.01,
                "risks": [None if risk is None else risk + 0.2 * left for risk in risks],
                "weights": weights,
                "weights_over": weights_over,
                "participants": [0, 1],
                "gradient_evaluations": number,
                "certificate": None,
                "validation_risks": [],
            }
        )
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_trained(folder: Path, content: dict[str, object], lines: str) -> None:
    """Write what a method and its baseline both leave."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "results.json").write_text(json.dumps(content))
    (folder / "rounds.jsonl").write_text(lines)


def write_run(
    folder: Path,
    *,
    name: str = "FedMinMax",
    before: Sequence[float | None] | None = (0.40, 0.20),
    after: Sequence[float | None] = (0.30, 0.24),
    halves: Sequence[float] = (0.03, 0.01),
    rows: Sequence[int] = (150, 900),
    groups: Sequence[str] = GROUPS,
    site_names: Sequence[str] = SITES,
    census: Sequence[Sequence[int]] = CENSUS,
    weights_over: str = "groups",
    **changed: object,
) -> Path:
    """Write a run folder with its baseline, if it has one."""
    sizes = {"groups": len(groups), "sites": len(site_names)}.get(weights_over, 0)
    content = results(name, after, halves, rows, groups, **changed)
    lines = round_lines(after, weights_over=weights_over, sizes=sizes)
    write_trained(folder, content, lines)
    table = {"format": 1, "sites": site_names, "groups": groups, "train": census, "test": census}
    (folder / "census.json").write_text(json.dumps(table))
    if before is not None:
        content = results("FedAvg", before, halves, rows, groups, **changed)
        lines = round_lines(before, weights_over="nothing", sizes=0)
        write_trained(folder / "baseline", content, lines)
    return judged(folder, **({"change": changed["change"]} if "change" in changed else {}))
