"""A confidence interval for the mean of row scores that also holds for few and for skewed rows.

Student's t interval (Biometrika 1908) of the rows and one additional, artificial row: for the upper
end it has the highest possible score, for the lower end the lowest. Without it, identical rows
would have an interval of width 0, although other rows may just not have been drawn; with it, the
interval of n rows that all have the lowest possible score extends to about 3 / n of the range, the
"rule of three" for proportions (Hanley and Lippman-Hand, JAMA 1983). The artificial row matters
less with more rows: the interval approaches the plain one. A confidence of more than 95%, as of
many intervals that are to hold at once, needs more of them, (z / 1.96)^2 with the normal quantile
z: where only rare rows have another score, one alone is too few far out in the tails.

If a score has no bound, as a squared error has none above, no interval holds for every
distribution, however many rows there are (Bahadur and Savage, Annals of Mathematical Statistics
1956). Then the artificial row is as far from the mean as any of n rows can be, sqrt(n - 1)
deviations (Samuelson, Journal of the American Statistical Association 1968), but at most
``MAX_DEVIATIONS``; and with fewer than ``MIN_ROWS`` rows there is no interval.

With 50 rows it covers the mean as often as it says for squares of errors with up to the tails of
Student's t with 5 degrees of freedom. Heavier tails need more rows: with 50 rows, squares of t with
3 degrees of freedom are covered in 84% of tables, lognormal ones in 86%, and errors of which 1%
are outliers in 47%, because many tables have none of these.

The highest of A means is high partly by chance. Its interval is from the highest lower end at an
error of alpha / A to the highest upper end at an error of alpha: all lower ends hold at once, and
the upper end of the group that is truly the highest holds. The difference: likewise over pairs.

It is a function of the number of rows, the sum and the sum of squares: sites that send only these
sums get the interval of the pooled rows. `benchmarks/interval_coverage.py` measures how often it
covers the true mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

CONFIDENCE = 0.95
# With fewer rows we do not say which group is worst off, gained or lost. From here on the coverage
# is within 2% of nominal for squares of errors with tails up to those of t with 5 degrees.
MIN_ROWS = 50
MAX_DEVIATIONS = 20.0


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; NaN if there is none."""

    value: float
    low: float
    high: float

    @property
    def negative(self) -> "Estimate":
        """Minus this."""
        return Estimate(-self.value, -self.high, -self.low)


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Bounds:
    """The minimum and maximum score of one row; infinite if there is no bound."""

    lower: float
    upper: float

    @property
    def of_differences(self) -> "Bounds":
        """The bounds of the difference between two scores of one row."""
        return Bounds(self.lower - self.upper, self.upper - self.lower)

    @property
    def known(self) -> bool:
        """Whether both are finite."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)


@dataclass(frozen=True)
class Scored:
    """The number of rows, the mean of their scores (NaN without rows) and the sum of squares.

    >>> Scored.of_sums(4, 2.0, 1.5) + Scored.of_sums(0, 0.0, 0.0)
    Scored(rows=4, mean=0.5, squares=1.5)
    """

    rows: int
    mean: float
    squares: float

    @staticmethod
    def of_sums(rows: int, total: float, squares: float) -> "Scored":
        """Return the statistics of rows with these sums."""
        return Scored(rows, total / rows if rows else math.nan, squares)

    @property
    def total(self) -> float:
        """The sum of the scores."""
        return self.rows * self.mean if self.rows else 0.0

    def __add__(self, other: "Scored") -> "Scored":
        """Combine the rows of both."""
        return Scored.of_sums(
            self.rows + other.rows, self.total + other.total, self.squares + other.squares
        )


def mean_interval(scored: Scored, bounds: Bounds, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean of the rows with its interval; no interval if none is valid.

    >>> zero_or_one = Bounds(0.0, 1.0)
    >>> mean_interval(Scored(1, 0.0, 0.0), zero_or_one)
    Estimate(value=0.0, low=0.0, high=1.0)
    >>> round(mean_interval(Scored(300, 0.0, 0.0), zero_or_one).high, 5)
    0.00986
    >>> mean_interval(Scored(3, 2.0, 21.0), Bounds(0.0, math.inf)).high
    nan
    """
    rows, mean = scored.rows, scored.mean
    if rows == 0 or (rows < MIN_ROWS and not bounds.known):
        return Estimate(mean, math.nan, math.nan)
    if rows == 1:
        return Estimate(mean, bounds.lower, bounds.upper)
    spread = max(0.0, scored.squares - scored.total * mean)
    farthest = math.sqrt(spread / (rows - 1)) * min(math.sqrt(rows - 1), MAX_DEVIATIONS)
    quantile, added = _student_quantile(rows - 1, confidence), _artificial_rows(confidence)

    def reach(bound: float) -> float:
        """Return how far the interval goes from the mean towards a bound."""
        distance = abs(bound - mean) if math.isfinite(bound) else farthest
        variance = (spread + added * distance**2 * rows / (rows + added)) / (rows + added - 1)
        return (added * distance) / (rows + added) + quantile * math.sqrt(variance / (rows + added))

    return Estimate(
        mean,
        max(bounds.lower, mean - reach(bounds.lower)),
        min(bounds.upper, mean + reach(bounds.upper)),
    )


def has_worst(judged: int, measured: int) -> bool:
    """Return whether one of the groups with enough rows can be called the worst off.

    A single one cannot if there are others: they may be worse off, nobody can say.
    """
    return judged > 1 or judged == measured


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the first minus the second, of different rows, with its interval.

    The distances of the ends are squared and added (Newcombe, Statistics in Medicine 1998; Zou and
    Donner, Statistics in Medicine 2008).

    >>> difference(Estimate(9.0, 6.0, 12.0), Estimate(4.0, 0.0, 8.0))
    Estimate(value=5.0, low=0.0, high=10.0)
    """
    value = first.value - second.value
    return Estimate(
        value,
        value - math.hypot(first.value - first.low, second.high - second.value),
        value + math.hypot(first.high - first.value, second.value - second.low),
    )


def highest_mean(
    groups: Sequence[Scored], bounds: Bounds, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the highest mean of these groups with an interval that accounts for the choice.

    >>> zero_or_one = Bounds(0.0, 1.0)
    >>> alone = highest_mean([Scored(100, 0.5, 50.0)], zero_or_one)
    >>> alone == mean_interval(Scored(100, 0.5, 50.0), zero_or_one)
    True
    """
    strict = at_once(confidence, len(groups))
    sure, plain = (
        [mean_interval(own, bounds, level) for own in groups] for level in (strict, confidence)
    )
    return highest(plain, sure)


def highest(plain: Sequence[Estimate], sure: Sequence[Estimate]) -> Estimate:
    """Return the highest value, from intervals each at the confidence and of all at once."""
    return Estimate(
        max(own.value for own in plain),
        max(own.low for own in sure),
        max(own.high for own in plain),
    )


def lowest_mean(
    groups: Sequence[Scored], bounds: Bounds, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the lowest mean of these groups, likewise."""
    turned = [Scored(own.rows, -own.mean, own.squares) for own in groups]
    return highest_mean(turned, Bounds(-bounds.upper, -bounds.lower), confidence).negative


def gap_of_means(
    groups: Sequence[Scored], bounds: Bounds, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the highest mean minus the lowest; the lower end is 0 if all may be equal."""
    strict = at_once(confidence, len(groups) * (len(groups) - 1))
    sure, plain = (
        [mean_interval(own, bounds, level) for own in groups] for level in (strict, confidence)
    )
    return gap(plain, sure)


def gap(plain: Sequence[Estimate], sure: Sequence[Estimate]) -> Estimate:
    """Return the highest value minus the lowest, from intervals likewise, of all pairs at once."""
    values = [own.value for own in plain]
    return Estimate(
        max(values) - min(values),
        max(0.0, *(difference(one, other).low for one, other in permutations(sure, 2))),
        max(difference(one, other).high for one, other in permutations(plain, 2)),
    )


def at_once(confidence: float, intervals: int) -> float:
    """Return the confidence of each of several intervals that are to hold at once (Bonferroni).

    >>> round(at_once(0.95, 10), 6), at_once(0.95, 0)
    (0.995, 0.95)
    """
    return 1.0 - (1.0 - confidence) / max(1, intervals)


@cache
def _artificial_rows(confidence: float) -> float:
    from scipy.special import ndtri

    return max(1.0, float(ndtri((1.0 + confidence) / 2.0) / ndtri((1.0 + CONFIDENCE) / 2.0)) ** 2)


@cache
def _student_quantile(degrees: int, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1.0 + confidence) / 2.0))
