"""Remarks on a run's answer: has it converged, what is proved, and what validation rows chose.

A proof bounds the worst group's (or site's) training risk from below. All remarks are stored as
data in the results and formatted as text for the user.
"""

from collections.abc import Sequence
from dataclasses import asdict

from fedminmax.core.bound_text import bounds_text, upper_percent, upper_text
from fedminmax.core.certificate import Certificate
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import CONVEX_LOSSES
from fedminmax.core.text import counted
from fedminmax.core.validation import ALL_ROWS, ONE_SITE, SMALL_GROUPS, ValidationRisk
from fedminmax.findings.records import ProofOfRun, Results, RiskAfterRound, ValidationOfRun
from fedminmax.runs.convergence import MIN_SHOWN, verdict
from fedminmax.training.round_record import RoundRecord

# The method that proves its answers where possible.
PROVING = "fedminmax-fast"
LOSS_NAMES = {
    "brier": "Brier risk",
    "cross_entropy": "cross-entropy",
    "squared_error": "mean squared error",
}
# Whose validation risk it is, if it is no group's.
OTHERS = {SMALL_GROUPS: None, ALL_ROWS: "all rows", ONE_SITE: "worst site"}
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def with_proof(results: Results, last: RoundRecord) -> Results:
    """Return the results with the last round's gap and proof, if any."""
    known: dict[str, object] = {}
    if last.remaining is not None:
        known["gap_left"] = last.remaining
    if last.certificate is not None:
        known["proof"] = ProofOfRun(**asdict(last.certificate))
    return results.model_copy(update=known) if known else results


def verdict_of(results: Results) -> str:
    """Describe whether a run on tables converged; if not, say what to do."""
    if results.convergence is None:
        return (
            f"Whether {results.method.name} has converged cannot be told from sums with noise; the "
            f"privacy guarantee fixed its {counted(results.method.rounds, 'round')} beforehand, "
            "and a new run with more of them has more noise in each."
        )
    convex = results.loss in CONVEX_LOSSES and not results.model.hidden
    return verdict(results.method.name, results.convergence, convex=convex)


def certificate_text(results: Results) -> str | None:
    """Describe what is proved, or why nothing is; None for a method that proves nothing."""
    if results.proof is None:
        return unproved_reason(results) if results.method.key == PROVING else None
    proved = results.proof.certificate
    least, ours = bounds_text(proved.min_risk, proved.risk)
    lowest, penalised = bounds_text(proved.lower, proved.upper)
    return (
        f"Proved: no {results.model.kind} model on these features whose parameter norm is at most "
        f"this model's can bring the {_proved_measure(results, proved)} below {least}; this model "
        f"has at most {ours}. With the penalty of ridge {proved.ridge:g} this holds for all "
        f"parameters: none is below {lowest}, this model has at most {penalised} (gap "
        f"{upper_text(proved.gap, 1)}).{_beyond_rounding(results, proved)}"
    )


def _proved_measure(results: Results, proved: Certificate) -> str:
    """Say which risk is meant: a mixture of groups has one that no single group needs to have."""
    risk = f"training risk ({LOSS_NAMES[results.loss]})"
    floor = results.method.options.get("epsilon") if results.method.key == PROVING else None
    terms = [f"every group has a weight of at least {floor:g}"] if floor else []
    if results.small_groups and proved.is_of_groups:
        names = counted(len(results.small_groups), "group")
        terms.append(f"the {names} too small to be trained for: the share of their rows")
    if not terms:
        return f"worst {proved.players}'s {risk}"
    return (
        f"highest {risk} of a mixture, which is no single group's risk (one group has all the "
        f"weight but this: {'; '.join(terms)}),"
    )


def _beyond_rounding(results: Results, proved: Certificate) -> str:
    """Add what the method predicts where rounding errors keep the proof from showing it."""
    left = results.gap_left
    if left is None or left >= proved.gap:
        return ""
    return (
        " Rounding errors of these columns allow no closer proof; the risks' second-order models "
        f"predict, without proof, that at most {upper_percent(max(left, MIN_SHOWN))} is left to "
        "gain."
    )


def unproved_reason(results: Results) -> str:
    """Say why no lower bound on the risk is proved, and what would prove one."""
    if results.model.hidden:
        return "No lower bound on the risk is proved: a network's risk is not convex."
    if results.loss == "brier":
        return (
            "No lower bound on the risk is proved: the Brier loss of a softmax is not convex in "
            'the parameters; with loss = "cross_entropy" and a ridge it can be proved.'
        )
    if results.privacy is not None:
        return (
            "No lower bound on the risk is proved: the sums have noise, for privacy, and a proof "
            "needs exact ones."
        )
    if results.model.members > 1:
        return "No lower bound on the risk is proved: the answer is a mixture of models."
    if results.method.key != PROVING:
        return (
            f"No lower bound on the risk is proved: {results.method.name} proves none; with a "
            "ridge in [model], 'fedminmax train --certify' does after its rounds."
        )
    if results.method.participation < 1.0:
        return (
            "No lower bound on the risk is proved: that needs rounds in which every site takes "
            "part."
        )
    return (
        "No lower bound on the risk is proved: that needs a ridge in [model], such as 1e-4, rounds "
        "in which every site takes part, and few enough features for second derivatives; with "
        "more features, --certify proves what one more round can."
    )


def validation_of(
    chosen: ValidationRisk,
    latest: ValidationRisk,
    *,
    rows: Sequence[int],
    groups: Sequence[str],
    unit: float,
    patience: int | None,
) -> ValidationOfRun:
    """Return the record for the results; ``unit`` converts risks to the target's unit."""

    def converted(found: ValidationRisk) -> RiskAfterRound | None:
        if not found.is_measured:
            return None
        return RiskAfterRound(
            round=found.round,
            risk=found.risk * unit,
            standard_error=found.standard_error * unit,
            group=OTHERS[found.group] if found.group < 0 else groups[found.group],
        )

    return ValidationOfRun(
        rows=tuple(rows), chosen=converted(chosen), last=converted(latest), patience=patience
    )


def validation_text(results: Results) -> str:
    """Say which round validation rows chose, and by which risk; "" if there are none."""
    found = results.validation
    if found is None:
        return ""
    rows = f"{sum(found.rows):,} validation rows"
    if found.chosen is None or found.last is None:
        return (
            f"{rows} chose no round, because none was measured for every group that counts: the "
            "answer is the last model."
        )
    lower = (found.last.risk or 0.0) < (found.chosen.risk or 0.0)
    tie = ", lower by less than the noise" if lower else ""
    verb = "chose" if results.iterate == Iterate.BEST.value else "would have chosen"
    return (
        f"{rows} {verb} the model after round {found.chosen.round:,} of {results.method.rounds:,}: "
        f"its validation risk is {risk_with_error(found.chosen)}; after round "
        f"{found.last.round:,} it is {risk_with_error(found.last)}{tie}."
    )


def risk_with_error(found: RiskAfterRound) -> str:
    """Format a worst risk, its standard error and its group."""
    whose = "small groups together" if found.group is None else found.group
    return f"{found.risk:.4g} {PLUS_MINUS} {found.standard_error:.2g} ({whose})"
