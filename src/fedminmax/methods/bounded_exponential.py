"""The exponential for weights that are powers of losses."""

import math

from fedminmax.core.errors import InputError

# exp of this is still a float64, with room for the sum.
MAX_EXPONENT = 600.0


def bounded_exponential(exponent: float) -> float:
    """Return exp, above zero; refuse what has no place in a sum.

    A weight as small as the smallest one here has no say beside one near the reference.

    >>> bounded_exponential(0.0), bounded_exponential(-1e9) > 0.0
    (1.0, True)
    """
    if exponent > MAX_EXPONENT:
        raise InputError(
            f"q-FedAvg: a holder's loss to the power q is e^{exponent:.0f} times the last round's "
            "mean loss to that power, too large for a floating-point number; use a smaller q or "
            "scale the loss down"
        )
    return math.exp(max(exponent, -MAX_EXPONENT))
