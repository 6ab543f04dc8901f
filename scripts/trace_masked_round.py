"""Count the room changes of one masked round: `python -m scripts.trace_masked_round [--calls]`.

A room is a package below fedminmax (methods, training, ...); the packages of network (wire, secure,
server, site, flare) are rooms by themselves. Core, the mathematics and files that every room uses,
is a library: calls of it are not counted. Sites and server run in this process, without the engine.

What is counted is what somebody reads who follows a round from one turn of the loop to the next: a
call from a function of one room to a function of another is one change, and the same call counts
once, however often it is made and for however many sites. Calls are traced as Python makes them;
what is called inside a list or a lambda belongs to the function around it, and reading a property
or making a record is not a call.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

import fedminmax
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.server.run import run_plan
from tests.network.logged_sites import LoggedSites
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan

SOURCE = str(Path(fedminmax.__file__).parent)
LIBRARY = "core"
# One turn of the loop goes from the beginning of one round to that of the next.
LOOP = "run_round"
TRACED_ROUND = 2
ROUNDS = 4
Call = tuple[str, str, str, str]


class Tracer:
    """Writes down which function of one room calls which function of another, in order."""

    def __init__(self) -> None:
        self.calls: dict[Call, None] = {}
        self._rounds = 0
        self._rooms: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Look at one event of the interpreter."""
        if event != "call":
            return
        if frame.f_code.co_name == LOOP:
            self._rounds += 1
        if self._rounds != TRACED_ROUND or not self._is_function(frame):
            return
        caller = frame.f_back
        while caller is not None and not self._is_function(caller):
            caller = caller.f_back
        if caller is None:
            return
        room, other = self._room(caller.f_code), self._room(frame.f_code)
        if room != other and LIBRARY not in (room, other):
            names = caller.f_code.co_qualname, frame.f_code.co_qualname
            self.calls.setdefault((str(room), names[0], str(other), names[1]))

    def _is_function(self, frame: FrameType) -> bool:
        """Return whether this is a function of ours that a reader would follow."""
        code = frame.f_code
        # Lists and lambdas have names in brackets, and what makes a record has underlines.
        named = not code.co_name.startswith(("<", "__")) or code.co_name == "__call__"
        return named and self._room(code) is not None and not _is_property(frame)

    def _room(self, code: CodeType) -> str | None:
        if code not in self._rooms:
            room = None
            if code.co_filename.startswith(SOURCE):
                *folders, _ = Path(code.co_filename).relative_to(SOURCE).parts
                kept = folders[: 2 if folders[:1] == ["network"] else 1]
                room = ".".join(kept) or "fedminmax"
            self._rooms[code] = room
        return self._rooms[code]


def _is_property(frame: FrameType) -> bool:
    own = frame.f_locals.get("self")
    found = getattr(type(own), frame.f_code.co_name, None)
    return own is not None and found is not None and not callable(found)


def trace_round(folder: Path) -> list[Call]:
    """Run a masked plan, and return the calls between rooms in one of its rounds."""
    run = PlannedRun("fedminmax-fast", {}, ROUNDS)
    plan = masked_plan(listed_config(folder, 'loss = "brier"\nridge = 1e-3'), FOUR_SITES, run)
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        error = run_plan(plan, LoggedSites(folder), folder / "run").error
    finally:
        sys.setprofile(None)
    if error is not None:
        raise RuntimeError(error)
    return list(tracer.calls)


def rooms_of(calls: list[Call]) -> Mapping[str, int]:
    """Count the changes by pair of rooms."""
    pairs: dict[str, int] = {}
    for room, _, other, _ in calls:
        pair = f"{room} -> {other}"
        pairs[pair] = pairs.get(pair, 0) + 1
    return dict(sorted(pairs.items(), key=lambda entry: -entry[1]))


def main() -> None:
    """Print the number of changes, by pair of rooms, and on request every call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", action="store_true", help="also print every call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls = trace_round(Path(folder))
    if options.calls:
        for room, caller, other, called in calls:
            print(f"{room}.{caller} -> {other}.{called}")
    for pair, number in rooms_of(calls).items():
        print(f"{number:4} {pair}")
    print(f"{len(calls)} room changes in a masked round")


if __name__ == "__main__":
    main()
