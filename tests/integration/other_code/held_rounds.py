"""A site that answers in its own time: not before the test lets it, or a little later each round.

So a test has all the time it needs for a fault, without hundreds of rounds to be quick enough.
"""

import os
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load

# Files in this folder are named after the rounds that are held.
FOLDER_VARIABLE = "FEDMINMAX_TEST_HELD"
SLOW = "slow"
SECONDS_OF_A_SLOW_ROUND = 0.2


def install(site: type[Any]) -> None:
    """Let the site wait before it answers."""
    at_once = site.answer
    folder = Path(os.environ[FOLDER_VARIABLE])

    def answer(self: object, run: object, order: bytes, ask: object = None) -> bytes:
        # The order's numbers are seed, round and phase.
        held = folder / str(int(load(order)["numbers"][1]))
        while held.exists():
            time.sleep(0.02)
        if (folder / SLOW).exists():
            time.sleep(SECONDS_OF_A_SLOW_ROUND)
        reply: bytes = at_once(self, run, order, ask)
        return reply

    site.answer = answer
