"""Whole numbers add up to what real numbers add up to, in any order, and never overflow."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.network.secure.fixed_point import (
    DoesNotFitError,
    Kind,
    Layout,
    Packed,
    Section,
    exponent_for,
    pack,
    unpack,
    words_from_bytes,
)
from fedminmax.network.secure.masks import Sum
from fedminmax.network.wire.codec import RefusedError

LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324


def layout_of(kind: Kind, length: int, exponent: int = 0) -> Layout:
    return Layout((Section("numbers", length, kind, exponent),))


def total_of(layout: Layout, values: list[Any]) -> Any:
    packed = [pack(layout, {"numbers": own}, len(values)) for own in values]
    total = Sum(packed[0])
    for own in packed[1:]:
        total.add(own)
    return unpack(layout, total.packed, len(values))["numbers"]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 40),
    st.integers(-300, 300),
    st.integers(0, 2**32),
)
def test_totals_equal_sums_of_real_numbers(sites: int, size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    spread = np.exp(generator.normal(size=(sites, 20), scale=3))
    values = np.ldexp(spread * generator.normal(size=(sites, 20)), size)
    largest = float(np.abs(values).max())
    layout = layout_of(Kind.FIXED, 20, exponent_for(largest, sites))
    total = total_of(layout, list(values))
    np.testing.assert_allclose(total, values.sum(axis=0), rtol=0, atol=1e-9 * largest)
    again = total_of(layout, list(generator.permutation(values)))
    np.testing.assert_array_equal(total, again)


@pytest.mark.parametrize("sites", [3, 19])
def test_numbers_travel_in_fewer_bytes_and_only_where_they_are_not_0(sites: int) -> None:
    generator = np.random.default_rng(sites)
    places = generator.random(50) < 0.4
    values = np.where(places, generator.uniform(-9.0, 9.0, size=(sites, 50)), 0.0)
    exponent = exponent_for(9.0, sites, 6, headroom=0)
    section = Section("numbers", 50, Kind.FIXED, exponent, 6, places)
    layout = Layout((section, Section("counts", 1, Kind.COUNT)))
    one = np.ones(1, dtype=np.int64)
    key, total = bytes(range(32)), None
    for own in values:
        masked = Sum(pack(layout, {"numbers": own, "counts": one}, sites))
        masked.add_mask(key, 1)
        sent = masked.packed.words_to_bytes()
        # The words that count failures and sites come last.
        assert len(sent) == 6 * int(places.sum()) + 8 * 3
        came = Packed(words_from_bytes(layout, sent), ())
        if total is None:
            total = Sum(came)
        else:
            total.add(came)
    assert total is not None
    for _ in range(sites):
        total.add_mask(key, -1)
    found = unpack(layout, total.packed, sites)
    np.testing.assert_allclose(
        found["numbers"], values.sum(axis=0), rtol=0, atol=sites * 2.0 ** -(exponent + 1)
    )
    assert found["counts"].tolist() == [sites]
    with pytest.raises(DoesNotFitError, match="larger than the agreed"):
        pack(layout, {"numbers": 100.0 * values[0], "counts": one}, sites)


def test_exponents_leave_room_for_numbers_that_grow() -> None:
    """Eight bits more than were seen fit at every site, and their sum is no other modulo 2^64."""
    for sites in (3, 10, 100):
        for largest in (1.0, 0.7, 1.99, 1e30, 1e-30):
            exponent = exponent_for(largest, sites)
            grown = [np.array([200 * largest, -200 * largest])] * sites
            total = total_of(layout_of(Kind.FIXED, 2, exponent), grown)
            np.testing.assert_allclose(total, sites * grown[0], rtol=1e-9)


@pytest.mark.parametrize("sites", [3, 5, 7])
def test_what_fits_never_overflows(sites: int) -> None:
    """The largest numbers that are let through add up without wrapping around."""
    fits, too_much = 2**62 // sites, 2**62 // sites + 1
    counts = [np.array([fits, -fits])] * sites
    total = total_of(layout_of(Kind.COUNT, 2), counts)
    assert total.tolist() == [sites * fits, -sites * fits]
    for wrong in (too_much, -too_much):
        with pytest.raises(DoesNotFitError):
            pack(layout_of(Kind.COUNT, 1), {"numbers": np.array([wrong])}, sites)
    for large in (2.0**62, -(2.0**62), LARGEST):
        with pytest.raises(DoesNotFitError):
            pack(layout_of(Kind.FIXED, 1, 0), {"numbers": np.array([large])}, sites)


def test_exact_numbers_stay_exact() -> None:
    """The largest and the smallest squares of floating-point numbers, and their negatives."""
    large, small = Fraction(LARGEST), Fraction(SMALLEST)
    values = [
        [large**2 * 2**53, small**2, -large],
        [-(large**2), -3 * small**2, small],
        [small**2, Fraction(0), Fraction(1, 3 * 2**5) * 3],
    ]
    total = total_of(layout_of(Kind.EXACT, 3), values)
    assert total == [sum(column, Fraction(0)) for column in zip(*values, strict=True)]
    with pytest.raises(RefusedError, match="no sums of floating-point"):
        pack(layout_of(Kind.EXACT, 1), {"numbers": [Fraction(1, 3)]}, 3)
    with pytest.raises(DoesNotFitError):
        pack(layout_of(Kind.EXACT, 1), {"numbers": [large**2 * 2**250]}, 3)


@pytest.mark.parametrize(
    ("layout", "numbers", "reason"),
    [
        (layout_of(Kind.FIXED, 1, 8), np.array([np.nan]), "NaN"),
        (layout_of(Kind.FIXED, 1, 8), np.array([np.inf]), "NaN or infinity"),
        (layout_of(Kind.COUNT, 1), np.array([0.5]), "not whole numbers"),
        (layout_of(Kind.FIXED, 1, 8), np.array([1]), "were agreed as rounded"),
        (layout_of(Kind.EXACT, 1), np.array([np.inf]), "NaN or infinity"),
        (layout_of(Kind.EXACT, 1), np.array([np.nan]), "NaN or infinity"),
        (layout_of(Kind.FIXED, 2, 8), np.array([1.0]), "2 numbers of numbers were agreed"),
        (Layout((Section("other", 1, Kind.FIXED, 8),)), np.array([1.0]), "other were agreed"),
    ],
)
def test_what_is_not_asked_for_or_not_a_number_stays(
    layout: Layout, numbers: Any, reason: str
) -> None:
    with pytest.raises(RefusedError, match=reason):
        pack(layout, {"numbers": numbers}, 3)


def test_masks_that_do_not_cancel_are_noticed() -> None:
    layout = layout_of(Kind.COUNT, 1)
    packed = pack(layout, {"numbers": np.array([4])}, 3)
    with pytest.raises(RefusedError, match="do not cancel"):
        unpack(layout, Packed(packed.words, ()), 3)
