"""Any t shares give the secret; t - 1 shares could be of any secret, each equally likely."""

from collections import Counter
from itertools import combinations, product
from unittest.mock import patch

import pytest

from fedminmax.network.secure import masks
from fedminmax.network.secure.masks import PRIME, deal, restore

SMALL = 7


def test_the_field_is_a_prime_one() -> None:
    """Miller and Rabin: a composite number passes for at most a quarter of all bases."""
    twos, odd = 0, PRIME - 1
    while odd % 2 == 0:
        twos, odd = twos + 1, odd // 2
    for base in range(2, 60):
        powers = [pow(base, odd * 2**square, PRIME) for square in range(twos)]
        assert powers[0] == 1 or PRIME - 1 in powers
    assert PRIME.bit_length() <= 8 * min(masks.SECRET_BYTES, masks.SHARE_BYTES)


def test_secrets_are_below_the_prime_and_drawn_from_all_of_it() -> None:
    """Half of them have the highest bit; that none or all of 64 have it happens once in 2^63."""
    drawn = [masks.new_secret() for _ in range(64)]
    assert max(drawn) < PRIME
    assert len(set(drawn)) == len(drawn)
    assert 0 < sum(own >= PRIME // 2 for own in drawn) < len(drawn)


def test_any_threshold_shares_give_the_secret() -> None:
    secret = int.from_bytes(bytes(range(100, 132)), "big")
    shares = deal(secret, 6, 4)
    for chosen in combinations(shares, 4):
        assert restore({place: shares[place] for place in chosen}) == secret


@pytest.mark.parametrize("places", [(1, 2), (1, 4), (3, 4)])
def test_fewer_shares_say_nothing(places: tuple[int, int]) -> None:
    """Over all polynomials: each pair of shares comes exactly once for every secret."""
    seen: Counter[tuple[int, int, int]] = Counter()
    for secret, *rest in product(range(SMALL), repeat=3):
        with patch("secrets.randbelow", side_effect=rest):
            shares = deal(secret, 4, 3, prime=SMALL)
        seen[secret, shares[places[0]], shares[places[1]]] += 1
    assert set(seen.values()) == {1}
    assert len(seen) == SMALL**3


def test_shares_are_drawn_anew() -> None:
    assert deal(5, 3, 2) != deal(5, 3, 2)
