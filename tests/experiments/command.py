"""Run the paper's experiments as a user would, here or in a process of their own."""

import os
import sys
from pathlib import Path

from experiments.paper.__main__ import main
from tests.cli.command import ONE_THREAD, Done, done_by

ROOT = Path(__file__).parents[2]
# A process in another folder finds the experiments by this.
PATHS = [str(ROOT), *filter(None, [ONE_THREAD.get("PYTHONPATH")])]
FROM_CLONE = ONE_THREAD | {"PYTHONPATH": os.pathsep.join(PATHS)}
SMALL = [
    *["--quick", "--rows", "200", "--rounds", "60", "--local-rounds", "2", "--fast-rounds", "3"],
    *["--sites", "4", "--epochs", "2", "--batch-size", "20", "--model", "mlp"],
    *["--learning-rate", "0.1"],
]


def paper(*words: str, cwd: Path) -> Done:
    """Run `python -m experiments.paper` with these words, in this process."""
    return done_by(main, *words, cwd=cwd)


def command(*words: str) -> list[str]:
    """The command's words for a process with the environment above."""
    return [sys.executable, "-m", "experiments.paper", *words]
