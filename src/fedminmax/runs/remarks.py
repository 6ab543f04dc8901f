"""Remarks on a run's answer: what is proved about it, and what validation rows chose.

A proof says how low the worst group's (or holder's) training risk can be at all. Both remarks are
kept as data in the results and written as text for the user.
"""

from collections.abc import Sequence
from dataclasses import asdict

from fedminmax.core.iterates import Iterate
from fedminmax.core.validation import ValidationRisk
from fedminmax.runs.records import ProofOfRun, Results, RiskAfterRound, ValidationOfRun
from fedminmax.runs.round_log import RoundRecord

# A method that proves its answers where that can be done.
PROVING = "fedminmax-fast"
MAX_DIGITS = 9
LOSS_WORDS = {
    "brier": "Brier risk",
    "cross_entropy": "cross-entropy",
    "squared_error": "mean squared error",
}
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def with_proof(results: Results, last: RoundRecord) -> Results:
    """Return the results with what the last round knew, and what is proved after it."""
    known: dict[str, object] = {}
    if last.remaining is not None:
        known["gap_left"] = last.remaining
    if last.certificate is not None:
        known["proof"] = ProofOfRun(**asdict(last.certificate))
    return results.model_copy(update=known) if known else results


def certificate_words(results: Results) -> str | None:
    """Say what is proved, or why nothing is; None for a method that proves nothing."""
    if results.proof is None:
        return _why_not(results) if results.method.key == PROVING else None
    proved = results.proof.certificate
    kind = "logistic" if results.task == "classification" else "linear"
    risk = f"training risk ({LOSS_WORDS[results.loss]})"
    least, ours = _told_apart(proved.min_risk, proved.risk)
    floor = results.method.options.get("epsilon") if results.method.key == PROVING else None
    terms = [f"every group weighs at least {floor:g}"] if floor else []
    if results.small_groups and proved.is_of_groups:
        terms.append("groups too small to be trained for weigh their share")
    whose = f"worst {proved.players}'s" + (f" ({', '.join(terms)})" if terms else "")
    return (
        f"Proved: no {kind} model on these features with parameters as short as this one's can "
        f"bring the {whose} {risk} below {least}; this one has {ours}. With the penalty of ridge "
        f"{proved.ridge:g} it holds for all: none is below {proved.lower:.6g}, this one has "
        f"{proved.upper:.6g} (gap {proved.gap:.1g})."
    )


def _why_not(results: Results) -> str:
    if results.model.hidden:
        return "Nothing is proved of how low the risk can be: a network's risk is not convex."
    if results.loss == "brier":
        return (
            "Nothing is proved of how low the risk can be: the Brier loss of a softmax is not "
            'convex in the parameters; with loss = "cross_entropy" and a ridge it can be proved.'
        )
    if results.method.participation < 1.0:
        return (
            "Nothing is proved of how low the risk can be: that takes rounds in which every holder "
            "takes part."
        )
    return (
        "Nothing is proved of how low the risk can be: that takes a ridge in [model], such as "
        "1e-4, rounds in which every holder takes part, and few enough features for second "
        "derivatives; with more of them --certify proves what one more round can."
    )


def _told_apart(lower: float, upper: float) -> tuple[str, str]:
    """Write two numbers with four digits, or as many more as it takes to tell them apart.

    >>> _told_apart(0.4498, 0.45), _told_apart(0.3952810, 0.3952812)
    (('0.4498', '0.45'), ('0.395281', '0.3952812'))
    """
    digits = 4
    while f"{lower:.{digits}g}" == f"{upper:.{digits}g}" and digits < MAX_DIGITS:
        digits += 1
    return f"{lower:.{digits}g}", f"{upper:.{digits}g}"


def validation_of(
    chosen: ValidationRisk,
    latest: ValidationRisk,
    rows: Sequence[int],
    groups: Sequence[str],
    unit: float,
    patience: int | None,
) -> ValidationOfRun:
    """Return what results say; ``unit`` is what a risk of 1 is in the target's own unit."""

    def told(found: ValidationRisk) -> RiskAfterRound | None:
        if not found.is_measured:
            return None
        return RiskAfterRound(
            round=found.round,
            risk=found.risk * unit,
            standard_error=found.standard_error * unit,
            group=groups[found.group] if found.group >= 0 else None,
        )

    return ValidationOfRun(
        rows=tuple(rows), chosen=told(chosen), last=told(latest), patience=patience
    )


def validation_words(results: Results) -> str:
    """Say which round validation rows chose, and by which risk; nothing if there are none."""
    found = results.validation
    if found is None:
        return ""
    rows = f"{sum(found.rows):,} validation rows"
    if found.chosen is None or found.last is None:
        return (
            f"{rows} chose no round, because none was measured for every group that counts: the "
            "last model stands in."
        )
    lower = (found.last.risk or 0.0) < (found.chosen.risk or 0.0)
    tie = ", too little lower to tell them apart" if lower else ""
    verb = "chose" if results.iterate == Iterate.BEST.value else "would have chosen"
    return (
        f"{rows} {verb} the model after round {found.chosen.round:,} of {results.method.rounds:,}: "
        f"its worst risk there is {risk_with_error(found.chosen)}; after round "
        f"{found.last.round:,} it is {risk_with_error(found.last)}{tie}."
    )


def risk_with_error(found: RiskAfterRound) -> str:
    """Say a worst risk, its standard error, and whose it is."""
    whose = "small groups together" if found.group is None else found.group
    return f"{found.risk:.4g} {PLUS_MINUS} {found.standard_error:.2g} ({whose})"
