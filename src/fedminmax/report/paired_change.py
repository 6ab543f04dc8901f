"""How risks by group change from one model to another that was measured on the same test rows.

The bootstrap of paired values (Efron and Tibshirani: An introduction to the bootstrap, 1993): both
models are summed over the same resamples, so that what makes a row hard for both of them cancels in
the difference. Sums are all that is needed: they may come from rows in this process or from sites.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.report.bootstrap import percentiles, ratios
from fedminmax.report.metric_by_group import NO_ESTIMATE, Estimate

Table = NDArray[np.float64]

LOSS, ROWS = 0, 1


@dataclass(frozen=True, eq=False)
class RiskSums:
    """Sums of losses and numbers of rows, in this order on the last axis, over each group.

    ``observed`` is [groups, 2], of the rows as they are; ``resampled`` is [resamples, groups, 2].
    """

    observed: Table
    resampled: Table


@dataclass(frozen=True)
class PairedChange:
    """Risk after minus risk before; NaN where a group has no rows.

    ``worst`` is the worst group's risk after minus the worst group's before, which may be another
    group. Like the gap, it does not know that these two were picked for being worst.
    """

    by_group: tuple[Estimate, ...]
    overall: Estimate
    worst: Estimate


def paired_change(after: RiskSums, before: RiskSums, confidence: float) -> PairedChange:
    """Return the change between two models whose sums are over the same rows and resamples.

    >>> def sums(loss): return RiskSums(np.array([[loss, 4.0]]), np.array([[[loss, 4.0]]] * 3))
    >>> paired_change(sums(1.0), sums(2.0), confidence=0.95).overall
    Estimate(value=-0.25, low=-0.25, high=-0.25)
    """
    _check_same_rows(after, before)
    values = _differences(after.observed, before.observed)
    drawn = _differences(after.resampled, before.resampled)
    overall = _differences(after.observed.sum(axis=0), before.observed.sum(axis=0))
    drawn_overall = _differences(after.resampled.sum(axis=1), before.resampled.sum(axis=1))
    return PairedChange(
        tuple(
            Estimate(value, *percentiles(drawn[:, group], confidence))
            for group, value in enumerate(values.tolist())
        ),
        Estimate(float(overall), *percentiles(drawn_overall, confidence)),
        _change_of_worst(after, before, confidence),
    )


def _check_same_rows(after: RiskSums, before: RiskSums) -> None:
    pairs = ((after.observed, before.observed), (after.resampled, before.resampled))
    if not all(np.array_equal(one[..., ROWS], other[..., ROWS]) for one, other in pairs):
        raise InputError(
            "the two models were not measured on the same rows and resamples; measure both with "
            "the same seed"
        )


def _differences(after: Table, before: Table) -> Table:
    """Subtract losses before dividing, so that equal ones leave exactly 0."""
    return ratios(after[..., LOSS] - before[..., LOSS], after[..., ROWS])


def _change_of_worst(after: RiskSums, before: RiskSums, confidence: float) -> Estimate:
    if not after.observed[:, ROWS].any():
        return NO_ESTIMATE
    now, drawn_now = _worst(after)
    earlier, drawn_earlier = _worst(before)
    return Estimate(now - earlier, *percentiles(drawn_now - drawn_earlier, confidence))


def _worst(sums: RiskSums) -> tuple[float, Table]:
    """Return the highest risk, and that group's risk in each resample."""
    risks = ratios(sums.observed[:, LOSS], sums.observed[:, ROWS])
    group = int(np.nanargmax(risks))
    own = sums.resampled[:, group]
    return float(risks[group]), ratios(own[:, LOSS], own[:, ROWS])
