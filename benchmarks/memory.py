"""Peak memory of one contestant, in its own process.

We read the high-water mark of the process's own pages (VmHWM). ``ru_maxrss`` is no use in a
child: Linux carries the parent's size at the moment of the fork over into it.
"""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks.timing import Contestant

ArgumentT = TypeVar("ArgumentT")


def peak_bytes() -> int:
    """Return this process's largest resident size so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; this needs Linux")


class _Measure(Generic[ArgumentT]):
    """Runs in the child: build, run twice, report the growth of the peak since the imports."""

    def __init__(self, build: Callable[[ArgumentT], Contestant], argument: ArgumentT) -> None:
        self.build = build
        self.argument = argument

    def __call__(self, answer: Connection) -> None:
        before = peak_bytes()
        contestant = self.build(self.argument)
        contestant.run()
        contestant.run()
        answer.send(peak_bytes() - before + contestant.close())


def peak_of(build: Callable[[ArgumentT], Contestant], argument: ArgumentT) -> int:
    """Return the bytes that this contestant uses beyond the imports, data included."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_Measure(build, argument), args=(sender,))
    child.start()
    sender.close()
    try:
        return int(receiver.recv())
    except EOFError as error:
        raise RuntimeError("the measured contestant died; see its traceback above") from error
    finally:
        child.join()
