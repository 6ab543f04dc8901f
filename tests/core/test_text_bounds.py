"""Bounds are true as printed, for every number and every number of digits."""

from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.text import bounds_text, lower_text, upper_percent, upper_text

numbers = st.floats(-1e9, 1e9).filter(lambda own: own == 0 or abs(own) > 1e-12)


@given(value=numbers, digits=st.integers(1, 9))
def test_no_text_is_on_the_wrong_side(value: float, digits: int) -> None:
    below, above = float(lower_text(value, digits)), float(upper_text(value, digits))
    assert below <= value <= above
    # No further than one unit of the last digit.
    assert above - below <= 10.0 ** (1 - digits) * abs(value) * (1 + 1e-9)


@given(share=st.floats(1e-12, 1.0))
def test_a_gap_in_percent_is_not_below_it(share: float) -> None:
    assert float(upper_percent(share).removesuffix(" %")) >= 100 * share


@given(upper=st.floats(1e-3, 10.0), gap=st.floats(0.0, 1.0))
def test_two_bounds_are_not_printed_far_apart(upper: float, gap: float) -> None:
    lower = upper * (1.0 - gap)
    below, above = (float(text) for text in bounds_text(lower, upper))
    assert below <= lower
    assert upper <= above
    assert above - below <= max(2.0 * (upper - lower), 2e-8 * upper) * (1 + 1e-9)
