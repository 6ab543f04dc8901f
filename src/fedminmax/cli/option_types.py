"""Types of command-line options: what came, what was expected, in one line."""

import argparse
import math
import re
from typing import TypeVar

NumberT = TypeVar("NumberT", int, float)

SECONDS_IN = {"s": 1.0, "m": 60.0, "h": 3600.0}


class NameList:
    """Parse a comma-separated list of known names."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def __call__(self, words: str) -> list[str]:
        """Return the names in the known order, each once."""
        names = [word.strip() for word in words.split(",")]
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(
                    f"'{name}' is unknown; choose from {', '.join(self._known)}"
                )
        return [name for name in self._known if name in names]


def duration(word: str) -> float:
    """Parse a time such as 90s, 30m, 2h or 1h30m into seconds."""
    parts = re.findall(r"([0-9.]+)([smh])", word)
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise argparse.ArgumentTypeError(f"'{word}' is not a time such as 90s, 30m, 2h or 1h30m")
    return sum(positive(number) * SECONDS_IN[unit] for number, unit in parts)


def channel_pair(word: str) -> tuple[int, int]:
    """Parse two positive whole numbers such as 16,32."""
    parts = word.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"'{word}' is not two numbers such as 16,32")
    return positive_int(parts[0]), positive_int(parts[1])


def positive_int(word: str) -> int:
    """Parse a whole number of at least 1."""
    return _number(word, int, 1, "a whole number of at least 1")


def whole_number(word: str) -> int:
    """Parse zero or a positive whole number."""
    return _number(word, int, 0, "zero or a positive whole number")


def positive(word: str) -> float:
    """Parse a positive number."""
    smallest = 1e-300
    return _number(word, float, smallest, "a positive number")


def not_negative(word: str) -> float:
    """Parse zero or a positive number."""
    return _number(word, float, 0.0, "zero or a positive number")


def _number(word: str, kind: type[NumberT], least: float, expected: str) -> NumberT:
    try:
        value = kind(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{word}' is not {expected}") from None
    if not least <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{word}' is not {expected}")
    return value
