"""The noise that a promise of differential privacy needs, and the promise that given noise keeps.

(epsilon, delta)-differential privacy (Dwork, Roth: The algorithmic foundations of differential
privacy, 2014): for any two data sets that differ in one unit, and any set S of outcomes,
P(S) <= exp(epsilon) P'(S) + delta. A release is a vector that changes by at most 1 in Euclidean
length with a unit, plus Gaussian noise whose deviation is the noise multiplier in every number.
Releases may depend on earlier ones.

Sums over many releases are taken by the privacy loss distribution (Koskela, Jalko, Honkela:
Computing tight differential privacy guarantees using FFT, AISTATS 2020) as ``dp-accounting`` has
it, with losses rounded up: what comes out is never too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fedminmax.core.errors import InputError, install_command
from fedminmax.core.text import format_value, is_finite

# Of the noise multiplier, and of epsilon in the grid of privacy losses.
TOLERANCE, GRID = 1e-4, 1e-3


@dataclass(frozen=True)
class Releases:
    """So many releases with this noise multiplier."""

    number: int
    noise_multiplier: float


def check_promise(epsilon: float, delta: float) -> None:
    """Refuse what cannot be a promise, whatever the data."""
    if not is_finite(epsilon) or epsilon <= 0:
        raise InputError(f"epsilon = {format_value(epsilon)}; give a positive number, such as 2")
    if not is_finite(delta) or not 0 < delta < 1:
        raise InputError(
            f"delta = {format_value(delta)}; give a number above 0 and below 1 / rows, such as 1e-6"
        )


@lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Return the least noise multiplier that keeps the promise over this many releases.

    >>> round(noise_multiplier(1.0, 1e-5, 1), 2)
    3.73
    """
    check_promise(epsilon, delta)
    low = high = 1.0
    while _epsilon_of((Releases(releases, high),), delta, GRID * epsilon) > epsilon:
        low, high = high, 2.0 * high
    while low == high or _epsilon_of((Releases(releases, low),), delta, GRID * epsilon) <= epsilon:
        low, high = 0.5 * low, low
    while high - low > TOLERANCE * high:
        middle = 0.5 * (low + high)
        if _epsilon_of((Releases(releases, middle),), delta, GRID * epsilon) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def epsilon_of(releases: Sequence[Releases], delta: float) -> float:
    """Return the epsilon that all of these releases together keep with this delta."""
    if not releases:
        return 0.0
    rough = _epsilon_of(tuple(releases), delta, 0.01)
    return _epsilon_of(tuple(releases), delta, GRID * max(rough, 0.01))


@lru_cache(maxsize=256)
def _epsilon_of(releases: tuple[Releases, ...], delta: float, grid: float) -> float:
    try:
        # Slow to import, and only runs with a promise need it.
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
    except ModuleNotFoundError as error:
        raise InputError(
            "a privacy guarantee needs the package dp-accounting; "
            f"{install_command('dp_accounting')}"
        ) from error
    accountant = PLDAccountant(value_discretization_interval=grid)
    for own in releases:
        event = dp_accounting.GaussianDpEvent(own.noise_multiplier)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, own.number))
    return float(accountant.get_epsilon(delta))
