"""Options in a person's words."""

import argparse

import pytest

from fedminmax.cli.options import duration


@pytest.mark.parametrize(
    ("word", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400)]
)
def test_durations(word: str, seconds: float) -> None:
    assert duration(word) == seconds


@pytest.mark.parametrize("word", ["", "2", "h", "2d", "2h x", "-2h", "1..5h", "0s"])
def test_what_is_not_a_duration(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(word)
