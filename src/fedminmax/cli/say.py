"""Words to the user beside the results, on standard error."""

import sys


def say(words: str) -> None:
    """Tell the user something at once."""
    print(f"fedminmax: {words}", file=sys.stderr, flush=True)
