"""The exponential for weights that are exponentials of losses."""

import math

# exp of this is still a float64, with room for the sum; only a first round with losses far from
# the reference comes near it.
LARGEST_EXPONENT = 600.0


def bounded_exponential(exponent: float) -> float:
    """Return exp, kept finite and above zero.

    >>> bounded_exponential(0.0), bounded_exponential(1e9) < math.inf
    (1.0, True)
    """
    return math.exp(min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT))
