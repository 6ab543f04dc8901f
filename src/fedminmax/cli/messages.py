"""Messages on standard error; they need no package but Python's own."""

import shutil
import sys
from textwrap import fill


def say(message: str) -> None:
    """Print a message on standard error, unbuffered; on a terminal no word is cut."""
    text = f"fedminmax: {message}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)
