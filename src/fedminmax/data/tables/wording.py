"""Formatting of columns, keys and lists of names in messages."""

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches

MAX_NAMES = 8


def toml_string(text: str) -> str:
    r"""Format text as a TOML string.

    >>> print(toml_string('say "a"'))
    "say \"a\""
    """
    # TOML is stricter than JSON in one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Format a name as a TOML key.

    >>> toml_key("marital status"), toml_key("hours-per-week")
    ('"marital status"', 'hours-per-week')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_string(name)


def listed(names: Sequence[str]) -> str:
    """Quote names for a message, the first few of many.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(f"'{name}'" for name in names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a hint if a known name is close to this one, else the known names.

    >>> did_you_mean("tagret", ["target", "seed"])
    "did you mean 'target'?"
    """
    close = get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there is {listed(known) or 'nothing'}"
