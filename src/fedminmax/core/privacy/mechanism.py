"""Differential privacy of a run: what is promised, and the noise that keeps the promise.

Before the first round sites report counts by group and, for a linear model, the sum of x x' (x
with a 1 for the intercept); in each round a step and losses by group. Each of these T + 1 messages
is a release of the Gaussian mechanism: all its numbers together are one
vector, which one unit changes by a limited length.

A unit that is a row is in one group, so it changes one group's block of a vector by group: A sums
by group are as sensitive as one. With a gradient of length C at most, a loss in [0, M] and a loss
sum taken around M/2,

    |(gradient sums / C, k (loss sums - M/2 counts) / (M/2))| changes by sqrt(1 + k^2) at most.

A unit that is a site ("site") is treated as one row: its sums are divided by its rows, and its
step is clipped as a whole. Everything else follows. Whether a site takes part is no secret.

Sites add the noise. Each of K draws with variance s^2 / (K - c), so that the sum has at least
s^2 even if c of them stay silent, or disclose what they drew.

| symbol | name                 |
|--------|----------------------|
| C      | Privacy.clip         |
| M      | Privacy.max_loss     |
| k      | SMALL_PART           |
| c      | Privacy.colluding    |
| T      | Privacy.rounds       |

(epsilon, delta)-differential privacy (Dwork, Roth: The algorithmic foundations of differential
privacy, 2014): for any two data sets that differ in one unit, and any set S of outcomes,
P(S) <= exp(epsilon) P'(S) + delta. A release is a vector that changes by at most 1 in Euclidean
length with a unit, plus Gaussian noise whose deviation is the noise multiplier in every number.
Releases may depend on earlier ones. They are added up by the privacy loss distribution (Koskela,
Jalko, Honkela: Computing tight differential privacy guarantees using FFT, AISTATS 2020) as
``dp-accounting`` has it, with losses rounded up: what comes out is never too small.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.bounds import LOSS_LIMITS
from fedminmax.core.errors import InputError, install_command
from fedminmax.core.losses import Loss
from fedminmax.core.noise import NoiseLevels, Unit
from fedminmax.core.text import format_value, is_finite, is_whole

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


# Of the second block of a release: losses beside gradients, counts beside x x'.
SMALL_PART = 0.5
# A site counts as if it had this many rows.
ROWS_OF_SITE = 1000
# Losses without a limit: cross-entropy of a row whose class got the fourth power of an even guess,
# and two deviations, squared.
CROSS_ENTROPY_CAP, SQUARED_ERROR_CAP = 4.0, 4.0
# The gradient of a squared error that is one deviation off, per unit of length of the row.
SLOPE_OF_DEVIATION = 2.0
# A group is included if the noise of its mean gradient is no longer than this share of the clip:
# with more, an adversary chooses groups for their noise (see experiments/privacy).
MAX_NOISE_IF_INCLUDED = 1.0 / 16.0
# Of the steepest gradient of a typical row: chosen on Adult, see experiments/privacy.
SHARE_OF_STEEPEST = 0.7
# Of networks, whose gradients have no typical length.
NETWORK_CLIP = 1.0


@dataclass(frozen=True)
class Privacy:
    """What a run promises, and how.

    Args:
        epsilon, delta: the promise.
        clip: the longest gradient of a row, or the longest step of a site.
        rounds: how many rounds the promise is for; no further one is answered.
        unit: what the promise is about.
        colluding: how many sites may stay silent or disclose their noise without breaking it.
        max_loss: what a row's loss counts at most; by default the loss's own limit, or a cap.

    >>> Privacy(epsilon=1.0, delta=1e-5, clip=0.0, rounds=20)
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: clip = 0; give a positive number, such as 1
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    clip: float
    rounds: int
    unit: Unit = Unit.ROW
    colluding: int = 0
    max_loss: float | None = None

    def __post_init__(self) -> None:
        check_promise(self.epsilon, self.delta)
        if not is_finite(self.clip) or self.clip <= 0:
            raise InputError(f"clip = {format_value(self.clip)}; give a positive number, such as 1")
        if not is_whole(self.rounds, 1):
            raise InputError(f"rounds = {self.rounds!r}; give a whole number of at least 1")
        if not is_whole(self.colluding, 0):
            raise InputError(f"colluding = {self.colluding!r}; give a whole number of at least 0")
        if self.max_loss is not None and not (is_finite(self.max_loss) and self.max_loss > 0):
            raise InputError(f"max_loss = {format_value(self.max_loss)}; give a positive number")

    @property
    def releases(self) -> Releases:
        """The rounds, and the release before the first one."""
        number = self.rounds + 1
        return Releases(number, noise_multiplier(self.epsilon, self.delta, number))

    def check_data(self, rows: int, sites: int) -> None:
        """Refuse a promise that says nothing about this many rows at this many sites."""
        units, name = (rows, "rows") if self.unit is Unit.ROW else (sites, "sites")
        if self.delta >= 1.0 / units:
            raise InputError(
                f"delta = {self.delta:g}, but there are {units:,} {name}; give one below "
                f"1 / {name}, such as {10.0 ** math.floor(math.log10(0.1 / units)):g}"
            )
        if self.colluding >= sites:
            raise InputError(
                f"colluding = {self.colluding}, but there are {sites} sites; give less than "
                "that, or nobody is left to add noise"
            )


def cap_of(loss: Loss, classes: int) -> float:
    """Return the most that a row's loss counts: its own limit, or a cap where it has none."""
    limits = next((own for known, own in LOSS_LIMITS.items() if known is loss), None)
    if limits is None:
        raise InputError("a privacy guarantee for a loss of your own needs max_loss; give it")
    if math.isfinite(limits.loss):
        return limits.loss
    return CROSS_ENTROPY_CAP * math.log(classes) if classes else SQUARED_ERROR_CAP


def steepness_of(loss: Loss) -> float:
    """Return the longest gradient of a row of length 1, up to one deviation off."""
    limits = next((own for known, own in LOSS_LIMITS.items() if known is loss), None)
    slope = math.inf if limits is None else limits.slope
    return slope if math.isfinite(slope) else SLOPE_OF_DEVIATION


def default_clip(loss: Loss, columns: int) -> float:
    """Return a clip for a linear model, from what is known without looking at any row.

    A standardised number is 1 off in the mean square, and of the 0/1 columns of a category one is
    1: so a row of that many columns, with its 1 for the intercept, is sqrt(1 + columns) long.
    """
    return float(f"{SHARE_OF_STEEPEST * steepness_of(loss) * math.sqrt(1.0 + columns):.2g}")


@dataclass(frozen=True)
class Mechanism:
    """The noise of one run, with all that decides it.

    ``key`` is what the noise is drawn from. A simulation makes it from its seed, and can be
    repeated; to publish a model, use a key that nobody knows. Over a network every site has a key
    of its own, and the server, which draws nothing, has none.
    """

    privacy: Privacy
    sites: int
    max_loss: float
    max_row: float
    key: bytes = field(default=b"", repr=False)

    @cached_property
    def noise_multiplier(self) -> float:
        """The deviation of the noise of a vector that a unit changes by 1 at most."""
        return self.privacy.releases.noise_multiplier

    @property
    def size(self) -> float:
        """How many rows a unit counts as."""
        return 1.0 if self.privacy.unit is Unit.ROW else float(ROWS_OF_SITE)

    def share_of(self, rows: int) -> float:
        """Return what the sums of a site with this many rows are multiplied by."""
        return 1.0 if self.privacy.unit is Unit.ROW else ROWS_OF_SITE / max(rows, 1)

    @property
    def levels(self) -> NoiseLevels:
        """What the server may know of the noise: it depends on no row."""
        all_of_them = math.sqrt(self.sites / (self.sites - self.privacy.colluding))
        first, second = (all_of_them * own for own in self._deviations)
        return NoiseLevels(
            gradient=first * self.privacy.clip * self.size,
            loss=second * 0.5 * self.max_loss * self.size,
            moment=first * self.max_row**2 * self.size / math.sqrt(2.0),
            max_row=self.max_row,
            rounds=self.privacy.rounds,
            unit=self.privacy.unit,
        )

    @property
    def _deviations(self) -> tuple[float, float]:
        """The sum's deviation in the first and second block, per unit of their sensitivity."""
        both = self.noise_multiplier * math.sqrt(1.0 + SMALL_PART**2)
        return both, both / SMALL_PART

    @property
    def _share_of_noise(self) -> float:
        """One site's deviation, per unit of that which must be left of the sum."""
        return 1.0 / math.sqrt(self.sites - self.privacy.colluding)

    def rows_to_include(self, numbers: int) -> int:
        """Return the rows that a group needs for an adversary to choose it.

        ``numbers`` is how many of a gradient's numbers matter.
        """
        length = self.levels.gradient * math.sqrt(numbers)
        return math.ceil(length / (MAX_NOISE_IF_INCLUDED * self.privacy.clip))

    def noise(
        self, label: str, first: Tensor, second: Tensor, *, of_one: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of all sites' noise for two blocks with sensitivities 1.

        With ``of_one`` it is one site's share of it, from a key that only this site has.
        """
        drawn = np.zeros(first.numel() + second.numel())
        for own in [label] if of_one else [f"{label}, site {site}" for site in range(self.sites)]:
            drawn += gaussian_noise(self.key, own, len(drawn))
        numbers = torch.from_numpy(drawn * self._share_of_noise)
        large, small = torch.split(numbers, [first.numel(), second.numel()])
        of_first, of_second = self._deviations
        return of_first * large.view(first.shape), of_second * small.view(second.shape)

    def add_to_round(
        self,
        noise: tuple[Tensor, Tensor],
        step: Tensor,
        centred_losses: Tensor,
        step_size: float,
    ) -> tuple[Tensor, Tensor]:
        """Return a round's sums with noise; ``step_size`` is the most that a unit adds to the step.

        ``centred_losses`` are loss sums minus half of the largest loss for each row.
        """
        on_step, on_losses = noise
        return (
            step.double().cpu() + step_size * on_step,
            centred_losses + 0.5 * self.max_loss * self.size * on_losses,
        )

    def add_to_census(
        self, noise: tuple[Tensor, Tensor], counts: Tensor, lower: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return rows by group [A] and the packed sum of x x' (or nothing) with noise.

        Off the diagonal numbers are there twice, so they count sqrt(2) times in a vector's length.
        """
        on_lower, on_counts = noise
        hidden = lower + self.max_row**2 * self.size * on_lower / _times_in_matrix(len(lower))
        return counts + self.size * on_counts, hidden

    def deviations_at_site(self, step_size: float) -> tuple[float, float]:
        """Return the deviations of one site's noise on a step and on losses."""
        share, (first, second) = self._share_of_noise, self._deviations
        return share * first * step_size, share * second * 0.5 * self.max_loss * self.size

    def census_deviations_at_site(self) -> tuple[float, float]:
        """Return the deviations of one site's noise on counts, and on x x' off the diagonal."""
        share, (first, second) = self._share_of_noise, self._deviations
        on_moment = first * self.max_row**2 * self.size / math.sqrt(2.0)
        return share * second * self.size, share * on_moment


def pack_moment(moment: Tensor) -> Tensor:
    """Return the numbers on and below the diagonal; none of an empty matrix."""
    if not moment.numel():
        return torch.zeros(0, dtype=torch.float64)
    rows, columns = torch.tril_indices(*moment.shape)
    return moment[rows, columns]


def unpack_moment(lower: Tensor) -> Tensor:
    """Return the symmetric matrix with these numbers on and below its diagonal."""
    size = _columns_of(len(lower))
    rows, columns = torch.tril_indices(size, size)
    moment = torch.zeros(size, size, dtype=torch.float64)
    moment[rows, columns] = moment[columns, rows] = lower
    return moment


def _columns_of(packed: int) -> int:
    return (math.isqrt(8 * packed + 1) - 1) // 2


def _times_in_matrix(packed: int) -> Tensor:
    """Return the root of how often each packed number is in the matrix."""
    size = _columns_of(packed)
    rows, columns = torch.tril_indices(size, size)
    return torch.where(rows == columns, 1.0, 2.0).double().sqrt()


def whole_counts(counts: Tensor) -> Tensor:
    """Return noisy counts as whole numbers, at least 1 each."""
    return counts.round().clamp(min=1.0).to(torch.int64)


def gaussian_noise(key: bytes, label: str, numbers: int) -> NDArray[np.float64]:
    """Draw standard normal numbers that look random without the key.

    Bits are those of SHAKE-256 (FIPS 202), normal numbers those of Box and Muller (1958).

    >>> gaussian_noise(b"key", "a", 3).shape
    (3,)
    """
    pairs = (numbers + 1) // 2
    stream = hashlib.shake_256(len(key).to_bytes(8) + key + label.encode()).digest(16 * pairs)
    bits = np.frombuffer(stream, np.uint64) >> np.uint64(11)
    first, second = bits.astype(np.float64).reshape(2, pairs) * 2.0**-53
    length = np.sqrt(-2.0 * np.log1p(-first))
    angle = 2.0 * np.pi * second
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:numbers]


def second_moment(x: Tensor, max_row: float, *, intercept: bool) -> Tensor:
    """Return the sum of x x' over rows, none longer than ``max_row``, in float64.

    With an ``intercept`` a 1 is appended to each.
    """
    rows = torch.cat([x.double(), x.new_ones(len(x), int(intercept)).double()], dim=1)
    rows *= (max_row / rows.norm(dim=1, keepdim=True)).clamp_(max=1.0)
    return rows.T @ rows
