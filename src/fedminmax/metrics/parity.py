"""Differences and ratios of rates between groups, to the definitions of Fairlearn.

| measure            | highest minus lowest group, and lowest divided by highest |
|--------------------|-----------------------------------------------------------|
| demographic parity | of the selection rate                                     |
| equal opportunity  | of the rate of true positives: 1 minus the misses         |
| equalized odds     | the worse of that and of the rate of false alarms         |

(Agarwal et al., ICML 2018; Hardt, Price and Srebro, NeurIPS 2016.) The ratio of selection rates is
the impact ratio of the four-fifths rule (29 CFR 1607.4 D).

Where a group has no record that a rate is about, Fairlearn takes the rate as 0, and a rate of a few
records makes any difference large by chance: such groups are left out and named. If no record at
all is selected there is no ratio.

Of a ratio of two independent rates p / q with intervals (l, u) and (L, U) the lower end is
(p q - sqrt((p q)^2 - l U (2 p - l) (2 q - U))) / (U (2 q - U)), the upper end likewise (Donner and
Zou, Statistical Methods in Medical Research 2012). For the choice of the groups the intervals allow
as those of ``metrics.intervals`` do.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from fedminmax.metrics.intervals import (
    MIN_ROWS,
    NO_ESTIMATE,
    Bounds,
    Estimate,
    Scored,
    at_once,
    gap,
    mean_interval,
)
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED, SELECTED

DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY = "demographic_parity", "equal_opportunity"
EQUALIZED_ODDS = "equalized_odds"
RATES = Bounds(0.0, 1.0)
ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class ParityMeasure:
    """A difference and a ratio, of which groups, and who was left out for want of records.

    Without two groups of enough records there is neither.
    """

    difference: Estimate
    ratio: Estimate
    highest: str | None
    lowest: str | None
    left_out: tuple[str, ...]


def parity_measures(
    rates: Mapping[str, Mapping[str, Scored]],
    confidence: float,
    small: Collection[str] = (),
    min_rows: int = MIN_ROWS,
) -> dict[str, ParityMeasure]:
    """Return the measures by name, from statistics of records by rate and group.

    There are none without a positive class. ``small`` groups are left out in any case.

    >>> rates = {
    ...     SELECTED: {"a": Scored(100, 0.5, 50), "b": Scored(100, 0.4, 40), "c": Scored(9, 1, 9)},
    ...     MISSED: {"a": Scored(50, 0.1, 5), "b": Scored(50, 0.2, 10), "c": Scored(9, 0, 0)},
    ...     FALSE_ALARMS: {"a": Scored(50, 0.1, 5), "b": Scored(50, 0.1, 5)},
    ... }
    >>> found = parity_measures(rates, 0.95)
    >>> found["demographic_parity"].ratio.value, found["demographic_parity"].left_out
    (0.8, ('c',))
    """
    if not {SELECTED, MISSED, FALSE_ALARMS} <= rates.keys():
        return {}
    turned = {
        group: Scored(own.rows, 1.0 - own.mean, own.rows - own.total)
        for group, own in rates[MISSED].items()
    }
    return {
        DEMOGRAPHIC_PARITY: _measure(rates[SELECTED], small, confidence, min_rows),
        EQUAL_OPPORTUNITY: _measure(turned, small, confidence, min_rows),
        EQUALIZED_ODDS: _worse(
            _measure(turned, small, at_once(confidence, 2), min_rows),
            _measure(rates[FALSE_ALARMS], small, at_once(confidence, 2), min_rows),
        ),
    }


def _measure(
    groups: Mapping[str, Scored], small: Collection[str], confidence: float, min_rows: int
) -> ParityMeasure:
    kept = [name for name, own in groups.items() if own.rows >= min_rows and name not in small]
    left_out = tuple(name for name in groups if name not in kept)
    if len(kept) < 2:
        return ParityMeasure(NO_ESTIMATE, NO_ESTIMATE, None, None, left_out)
    strict = at_once(confidence, len(kept) * (len(kept) - 1))
    plain, sure = (
        [mean_interval(groups[name], RATES, level) for name in kept]
        for level in (confidence, strict)
    )
    by_rate = sorted(kept, key=lambda name: groups[name].mean)
    return ParityMeasure(
        gap(plain, sure), _lowest_ratio(plain, sure), by_rate[-1], by_rate[0], left_out
    )


def _lowest_ratio(plain: Sequence[Estimate], sure: Sequence[Estimate]) -> Estimate:
    values = [own.value for own in plain]
    if max(values) == 0.0:
        return NO_ESTIMATE
    return Estimate(
        min(values) / max(values),
        min(ratio(one, other).low for one, other in permutations(plain, 2)),
        min(1.0, *(ratio(one, other).high for one, other in permutations(sure, 2))),
    )


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """Return a rate divided by another one of other records, with its interval.

    >>> found = ratio(Estimate(0.4, 0.3, 0.5), Estimate(0.5, 0.4, 0.6))
    >>> round(found.value, 2), round(found.low, 3), round(found.high, 3)
    (0.8, 0.57, 1.097)
    """
    p, q = one.value, other.value
    if q == 0.0:
        return Estimate(math.nan, 0.0, math.inf)

    def end(own: float, others: float, sign: int) -> float:
        product = own * others * (2 * p - own) * (2 * q - others)
        below = others * (2 * q - others)
        root = math.sqrt(max(0.0, (p * q) ** 2 - product))
        if abs(below) < 1e-12:
            # The limit of the lower end; there is no upper one.
            return own * (2 * p - own) / (2 * p * q) if sign < 0 and p else math.inf * (sign > 0)
        return (p * q + sign * root) / below

    high = math.inf if other.low <= 0.0 else end(one.high, other.low, 1)
    return Estimate(p / q, max(0.0, end(one.low, other.high, -1)), high)


def _worse(one: ParityMeasure, other: ParityMeasure) -> ParityMeasure:
    """Return the larger difference and the smaller ratio; groups are those of the difference."""
    left_out = tuple(dict.fromkeys((*one.left_out, *other.left_out)))
    known = [own for own in (one, other) if own.highest is not None]
    if len(known) < 2:
        return ParityMeasure(NO_ESTIMATE, NO_ESTIMATE, None, None, left_out)
    chosen = max(known, key=lambda own: own.difference.value)
    differences, ratios = [own.difference for own in known], [own.ratio for own in known]
    smallest = NO_ESTIMATE
    if not any(math.isnan(own.value) for own in ratios):
        smallest = Estimate(*(min(getattr(own, end) for own in ratios) for end in ENDS))
    return ParityMeasure(
        Estimate(*(max(getattr(own, end) for own in differences) for end in ENDS)),
        smallest,
        chosen.highest,
        chosen.lowest,
        left_out,
    )
