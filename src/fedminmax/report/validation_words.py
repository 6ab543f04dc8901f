"""What validation rows chose, for results, and in words."""

from collections.abc import Sequence

from fedminmax.core.iterates import Iterate
from fedminmax.core.validation import ValidationRisk
from fedminmax.report.run_folder_records import Results, RiskAfterRound, ValidationOfRun

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


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
