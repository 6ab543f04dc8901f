"""Metrics by group from sums of scores alone, where the rows themselves stay with their holders.

Values are quotients of sums, exactly as from rows. Intervals are percentiles of resampled sums,
drawn from the normal distribution that has the bootstrap's own mean and covariance (see
``core.score_sums``). For a group of few rows this is rougher than drawing its rows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.core.score_sums import ScoreSums
from fedminmax.report.bootstrap import CONFIDENCE, RESAMPLES, ratios
from fedminmax.report.metric_by_group import GroupMetrics, estimate_by_group
from fedminmax.report.model_scores import RISKS
from fedminmax.report.paired_change import RiskSums

Table = NDArray[np.float64]

# Where two scores are the same, or one never varies, rounding leaves so much of a variance.
ROUNDING = 1e-12
# No rows have a metric beyond these, but a normal distribution has.
RANGES = {
    "accuracy": (0.0, 1.0),
    "brier_risk": (0.0, 2.0),
    "overconfidence": (-1.0, 1.0),
    "selection_rate": (0.0, 1.0),
    "false_positive_rate": (0.0, 1.0),
    "false_negative_rate": (0.0, 1.0),
    "calibration": (-1.0, 1.0),
    "squared_error": (0.0, np.inf),
    "absolute_error": (0.0, np.inf),
}


class DrawnSums:
    """Sums of several models' scores, with resamples that are the same for all of them.

    Args:
        names: the metrics, in the order of the scores: each model has all numerators, then all
            denominators.
        sums: of all models, side by side.
        seed: of the resamples.
    """

    def __init__(self, names: Sequence[str], sums: ScoreSums, seed: int) -> None:
        self._names = tuple(names)
        self._counts = sums.counts.numpy()
        self._totals = sums.totals.numpy()
        self._drawn = _draw(sums, seed)

    @property
    def rows(self) -> int:
        """All rows."""
        return int(self._counts.sum())

    def metrics(self, model: int) -> GroupMetrics:
        """Return one model's metrics; groups are named by their numbers, and need a row."""
        present = np.flatnonzero(self._counts)
        width = len(self._names)
        metrics = {}
        for place, name in enumerate(self._names):
            upper, lower = self._column(model, place), self._column(model, place + width)
            values = ratios(self._totals[present, upper], self._totals[present, lower])
            overall = ratios(self._totals[:, upper].sum(), self._totals[:, lower].sum())
            below = self._drawn[:, present, lower]
            # Denominators are numbers of rows: less than half a row is none.
            below = np.where(below < 0.5, 0.0, below)
            least, most = RANGES.get(name, (-np.inf, np.inf))
            above = self._drawn[:, present, upper]
            metrics[name] = estimate_by_group(
                name,
                dict(zip(map(str, present), values.tolist(), strict=True)),
                float(overall),
                np.where(below > 0.0, np.clip(ratios(above, below), least, most) * below, 0.0),
                below,
                CONFIDENCE,
            )
        counts = {str(number): int(self._counts[number]) for number in present}
        return GroupMetrics(counts, metrics, CONFIDENCE, RESAMPLES)

    def risk(self, model: int) -> RiskSums:
        """Return one model's losses, for a comparison with another's on the same resamples."""
        place = next(n for n, name in enumerate(self._names) if name in RISKS)
        column = self._column(model, place)
        counts = self._counts.astype(np.float64)
        losses = self._drawn[:, :, column]
        return RiskSums(
            np.stack([self._totals[:, column], counts], axis=1),
            np.stack([losses, np.broadcast_to(counts, losses.shape)], axis=2),
        )

    def _column(self, model: int, place: int) -> int:
        return model * 2 * len(self._names) + place


def _draw(sums: ScoreSums, seed: int) -> Table:
    """Draw sums [resamples, groups, scores]; a stream for each group."""
    drawn = []
    totals, covariances = sums.totals.numpy(), sums.covariances.numpy()
    for number, (total, covariance) in enumerate(zip(totals, covariances, strict=True)):
        generator = numpy_stream(seed, Purpose.BOOTSTRAP, number)
        normal = generator.standard_normal((RESAMPLES, len(total)))
        drawn.append(total + normal @ _root(covariance))
    return np.stack(drawn, axis=1)


def _root(covariance: Table) -> Table:
    """Return a matrix R with R^T R = covariance, the root of the correlations times deviations.

    Squared errors may be larger than others by many powers of ten, whose variances would be lost
    in the rounding of the largest.
    """
    deviations = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    apart = np.outer(deviations, deviations)
    correlations = np.divide(covariance, apart, out=np.zeros_like(apart), where=apart > 0.0)
    values, vectors = np.linalg.eigh(correlations)
    kept = np.where(values > ROUNDING, values, 0.0)
    root: Table = (vectors * np.sqrt(kept)) @ vectors.T * deviations
    return root
