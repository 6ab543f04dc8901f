"""Nothing of an answer is to be seen in what leaves a site, however the server looks at it.

Bytes of a masked vector are independent and uniform. For n of them Pearson's chi-square over 256
cells has mean 255 and standard deviation 22.6; a correct implementation exceeds 500 with a
probability below 1e-17. That of the answers themselves is in the millions.

Any t shares give the secret; t - 1 shares could be of any secret, each equally likely.
"""

from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from fedminmax.network.secure import masks
from fedminmax.network.secure.fixed_point import Kind, Layout, Packed, Section, pack
from fedminmax.network.secure.masks import PRIME, Sum, deal, restore, self_mask_key
from fedminmax.network.secure.messages import (
    Ask,
    Unmasked,
    from_bytes,
    to_bytes,
    upload_from_bytes,
)
from tests.network.secure.masked_sites import FIRST, SITES, MaskedSites

BOUND = 500.0
LENGTH = 20_000
LAYOUT = Layout((Section("step", LENGTH, Kind.FIXED, 40), Section("counts", 2, Kind.COUNT)))


def histogram(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.bincount(np.frombuffer(words.tobytes(), dtype=np.uint8), minlength=256)


def chi_square(words: NDArray[np.uint64]) -> float:
    counts = histogram(words)
    expected = counts.sum() / 256
    return float(((counts - expected) ** 2 / expected).sum())


def chi_square_of_two(one: NDArray[np.uint64], two: NDArray[np.uint64]) -> float:
    """Of two samples of the same size, whatever distribution they share."""
    first, second = histogram(one), histogram(two)
    both = first + second
    return float(((first - second)[both > 0] ** 2 / both[both > 0]).sum())


def run(folder: Path, steps: Any) -> tuple[MaskedSites, dict[str, Packed]]:
    sites = MaskedSites(folder)
    for site in sites.masked.values():
        site.values, site.layout = {"step": steps, "counts": np.array([3, 4])}, LAYOUT
    _, totals = sites.open()
    sites.ask(totals, layout=LAYOUT)
    uploads = {
        site: upload_from_bytes(message, Ask(FIRST, SITES), LAYOUT, site).packed
        for site, question, message in sites.transcript
        if question == "answer"
    }
    return sites, uploads


def test_uploads_are_uniform_and_the_same_for_all_data(tmp_path: Path) -> None:
    nothing, large = np.zeros(LENGTH), np.linspace(-1e4, 1e4, LENGTH)
    _, first = run(tmp_path / "first", nothing)
    _, second = run(tmp_path / "second", large)
    plain = [
        pack(LAYOUT, {"step": own, "counts": np.ones(2, int)}, 5).words for own in (nothing, large)
    ]
    # The tests see what is not masked.
    assert min(chi_square(own) for own in plain) > 20 * BOUND
    assert chi_square_of_two(*plain) > 20 * BOUND
    for site in SITES:
        one, two = first[site].words, second[site].words
        assert chi_square(one) < BOUND
        assert chi_square(two) < BOUND
        assert chi_square_of_two(one, two) < BOUND
        # Nor are masks used again, whose difference would be the data's.
        assert chi_square(one - two) < BOUND


def test_an_upload_without_its_own_mask_is_still_masked_by_the_others(tmp_path: Path) -> None:
    """The server learns all seeds of a finished question: pairs' masks are still on."""
    sites, uploads = run(tmp_path, np.zeros(LENGTH))
    seeds = {
        site: from_bytes(message, Unmasked, site).seed
        for site, question, message in sites.transcript
        if question == "unmask"
    }
    # Own masks are drawn anew: one that others could guess would hide nothing from colluding sites.
    assert len(set(seeds.values())) == len(SITES)
    bare = {}
    for site in SITES:
        own = Sum(uploads[site])
        own.add_mask(self_mask_key(seeds[site]), -1)
        bare[site] = own.packed.words
        assert chi_square(bare[site]) < BOUND
    # Nor does a sum over all sites but one say anything.
    four = bare["east"] + bare["mid"] + bare["north"] + bare["south"]
    assert chi_square(four) < BOUND
    assert not (four + bare["west"])[:LENGTH].any()


def words_at_any_place(content: bytes) -> set[int]:
    """All words of eight bytes, wherever they begin."""
    found: set[int] = set()
    for start in range(8):
        whole = (len(content) - start) // 8
        found |= set(np.frombuffer(content, dtype=np.uint64, count=whole, offset=start).tolist())
    return found


def test_the_server_s_transcript_has_no_answer(tmp_path: Path) -> None:
    """No word of any site's own numbers is among all that the server got."""
    steps = np.random.default_rng(1).normal(size=LENGTH)
    sites, _ = run(tmp_path, steps)
    received = b"".join(m for _, _, m in sites.transcript if isinstance(m, bytes))
    found = words_at_any_place(received)
    packed = pack(LAYOUT, {"step": steps, "counts": np.array([3, 4])}, 5).words[:LENGTH]
    # Rounded as they travel, and as floating-point numbers, single ones two by two.
    for numbers in (packed, steps, steps.astype(np.float32)):
        words = set(numbers.view(np.uint64).tolist())
        assert words <= words_at_any_place(b"123" + numbers.tobytes())
        assert len(found & words) == 0


def test_sites_that_saw_different_orders_make_noise_even_if_all_seeds_are_known(
    tmp_path: Path,
) -> None:
    """The masks of pairs depend on all that a site saw: no signature is needed for this."""
    same: dict[str, bytes] = {}
    for name, orders in (("same", same), ("other", {"west": b"a model that only west sees"})):
        sites = MaskedSites(tmp_path / name)
        for masked in sites.masked.values():
            masked.values = {"step": np.zeros(LENGTH), "counts": np.array([3, 4])}
            masked.layout = LAYOUT
        sites.open()
        ask, total = Ask(FIRST, SITES), np.zeros(LAYOUT.words, dtype=np.uint64)
        for site, own in sites.masked.items():
            message = own.answer(orders.get(site, b"a model"), to_bytes(ask))
            bare = Sum(upload_from_bytes(message, ask, LAYOUT, site).packed)
            bare.add_mask(self_mask_key(own.secure._masked[FIRST].seed), -1)
            total += bare.packed.words
        assert bool(total[:LENGTH].any()) is bool(orders)
        assert not orders or chi_square(total) < BOUND


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
