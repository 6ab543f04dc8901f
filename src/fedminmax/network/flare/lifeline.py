"""Processes that end with the one that started them, in whatever way that ended.

A process that was killed cleans up nothing, and its children would go on, connected and answering.
So every process that starts others holds the writing end of a pipe, which the system closes when
the process is gone, and its children wait at the other end.
"""

import os
import sys
import threading
from functools import cache

ENDED_WITH_PARENT = 9


@cache
def lifeline() -> int:
    """Return what a child is given as its standard input; it ends when this process does.

    The writing end is not inherited, and stays open for as long as this process lives.
    """
    reading, _ = os.pipe()
    return reading


def end_with_parent() -> None:
    """Let this process end, at once, when the one that gave it its standard input has ended."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1):
        pass
    # Nothing is finished or said: whoever stopped the parent wants silence.
    os._exit(ENDED_WITH_PARENT)
