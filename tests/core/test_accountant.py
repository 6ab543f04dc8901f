"""The noise against the Gaussian mechanism's exact formula, which knows nothing of the accountant.

With sensitivity 1 and deviation s, the privacy loss of the Gaussian mechanism is normal with mean
1 / (2 s^2) and deviation 1 / s, on one side, and with the opposite mean on the other. So the least
delta is P(L > epsilon) - exp(epsilon) P(L' > epsilon) (Balle, Wang: Improving the Gaussian
mechanism for differential privacy, ICML 2018, Theorem 8). k releases are one of a vector that
changes by sqrt(k).
"""

import math
from statistics import NormalDist

import pytest

from fedminmax.core.errors import InputError
from fedminmax.core.privacy.accountant import Releases, epsilon_of, noise_multiplier

NORMAL = NormalDist()


def delta_of(epsilon: float, deviation: float) -> float:
    half, far = 0.5 / deviation, epsilon * deviation
    return NORMAL.cdf(half - far) - math.exp(epsilon) * NORMAL.cdf(-half - far)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_one_release_has_the_noise_of_the_exact_formula(epsilon: float, delta: float) -> None:
    noise = noise_multiplier(epsilon, delta, 1)
    assert delta_of(epsilon, noise) <= delta
    # No more than a fifth of a percent above the least.
    assert delta_of(epsilon, noise / 1.002) > delta


@pytest.mark.parametrize("number", [4, 31])
def test_many_releases_are_one_with_less_noise(number: int) -> None:
    many, one = noise_multiplier(1.0, 1e-5, number), noise_multiplier(1.0, 1e-5, 1)
    assert many == pytest.approx(math.sqrt(number) * one, rel=1e-3)
    assert delta_of(1.0, many / math.sqrt(number)) <= 1e-5


def test_what_was_promised_adds_up_over_releases_of_different_noise() -> None:
    """Gaussians compose to the one whose inverse square is the sum of theirs."""
    together = epsilon_of([Releases(3, 5.0), Releases(1, 2.0)], 1e-5)
    same = 1.0 / math.sqrt(3 / 25 + 1 / 4)
    assert delta_of(together, same) <= 1e-5 < delta_of(0.998 * together, same)
    assert epsilon_of([], 1e-5) == 0.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5)])
def test_no_promise_without_a_positive_epsilon(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"epsilon = .*; give a positive number"):
        noise_multiplier(epsilon, delta, 1)


@pytest.mark.parametrize("delta", [0.0, -1e-9, 1.0])
def test_no_promise_without_a_delta_between_0_and_1(delta: float) -> None:
    with pytest.raises(InputError, match=r"delta = .*; give a number above 0"):
        noise_multiplier(1.0, delta, 1)
