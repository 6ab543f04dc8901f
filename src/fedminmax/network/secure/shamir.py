"""A secret in shares: any ``threshold`` of them give it back, fewer say nothing (Shamir 1979).

The secret is the value at 0 of a random polynomial of degree threshold - 1 over a prime field, and
share i is its value at i. Through any threshold - 1 shares and any secret at all goes exactly one
such polynomial, so these shares are equally likely whatever the secret is.
"""

import secrets
from collections.abc import Mapping

# The prime of X25519: secrets and shares below it have 32 bytes.
PRIME = 2**255 - 19
SECRET_BYTES = 32
SHARE_BYTES = 32


def new_secret() -> int:
    """Draw a secret."""
    return secrets.randbelow(PRIME)


def deal(secret: int, shares: int, threshold: int, prime: int = PRIME) -> dict[int, int]:
    """Return the shares 1, 2, ..., each a number below the prime."""
    polynomial = [secret, *(secrets.randbelow(prime) for _ in range(threshold - 1))]
    return {place: _value(polynomial, place, prime) for place in range(1, shares + 1)}


def restore(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret from as many shares as the threshold: Lagrange's formula at 0."""
    secret = 0
    for place, share in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != place:
                above = above * other % prime
                below = below * (other - place) % prime
        secret += share * above * pow(below, -1, prime)
    return secret % prime


def _value(polynomial: list[int], place: int, prime: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * place + coefficient) % prime
    return value
