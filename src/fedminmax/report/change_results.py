"""The section "change" of results.json: risks of the method minus its baseline's, row by row."""

from typing import Any

from fedminmax.report.bootstrap import CONFIDENCE, RESAMPLES
from fedminmax.report.paired_change import ROWS, RiskSums, paired_change
from fedminmax.report.table_metrics import RISK, estimate_as_json

CHANGE = "change"


def change_content(after: RiskSums, before: RiskSums, baseline: dict[str, Any]) -> dict[str, Any]:
    """Write down the change from the baseline with these results."""
    change = paired_change(after, before, CONFIDENCE)
    rows = after.observed[:, ROWS].astype(int).tolist()
    return {
        "baseline": _named(baseline),
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "metrics": {
            RISK: {
                "overall": estimate_as_json(change.overall),
                "by_group": [
                    estimate_as_json(own) | {"rows": count}
                    for own, count in zip(change.by_group, rows, strict=True)
                ],
                "worst": estimate_as_json(change.worst),
            }
        },
    }


def change_from(results: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any] | None:
    """Return a run's change in risk from this baseline; None if there is none, or of another."""
    section = results.get(CHANGE)
    if section is None or section["baseline"] != _named(baseline):
        return None
    change: dict[str, Any] = section["metrics"][RISK]
    return change


def _named(baseline: dict[str, Any]) -> dict[str, Any]:
    """Tell a baseline from another, and from itself after more rounds."""
    return {name: baseline["method"][name] for name in ("key", "name", "rounds")}
