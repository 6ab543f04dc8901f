"""What the last round certifies and validation chose, as records for the results."""

from collections.abc import Sequence
from dataclasses import asdict

from fedminmax.core.validation import ALL_ROWS, ONE_SITE, SMALL_GROUPS, ValidationRisk
from fedminmax.findings.records import ProofOfRun, Results, RiskAfterRound, ValidationOfRun
from fedminmax.training.round_record import RoundRecord

# Whose validation risk it is, if it is no group's.
OTHERS = {SMALL_GROUPS: None, ALL_ROWS: "all rows", ONE_SITE: "worst site"}


def with_proof(results: Results, last: RoundRecord) -> Results:
    """Return the results with the last round's gap and proof, if any."""
    known: dict[str, object] = {}
    if last.remaining is not None:
        known["gap_left"] = last.remaining
    if last.certificate is not None:
        known["proof"] = ProofOfRun(**asdict(last.certificate))
    return results.model_copy(update=known) if known else results


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
