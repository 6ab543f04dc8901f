"""A site's local state on disk: vectors from round to round.

One file per round: a server that goes on from a checkpoint asks for a round again, and the site
then starts from what it kept before that round, as if the round had never been.
"""

import re
from pathlib import Path

from torch import Tensor

from fedminmax.core.files import write_bytes
from fedminmax.network.wire.messages import vector_from_bytes, vector_to_bytes

# The server's checkpoint and its predecessor are at most two rounds back.
ROUNDS_KEPT = 4
FILE_NAME = re.compile(r"round-(\d+)\.safetensors")


class SiteState:
    """The files of one run at one site."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, number: int, start: Tensor) -> Tensor:
        """Return the vector of the last round before this one; ``start`` if there is none."""
        earlier = [kept for kept in self._rounds() if kept < number]
        if not earlier:
            return start
        path = self._path(max(earlier))
        return vector_from_bytes(path.read_bytes(), start, str(path))

    def keep(self, number: int, vector: Tensor) -> None:
        """Store this round's vector; drop later rounds, which are being repeated, and old ones."""
        for later in [kept for kept in self._rounds() if kept >= number]:
            self._path(later).unlink()
        write_bytes(self._path(number), vector_to_bytes(vector))
        for old in sorted(self._rounds())[:-ROUNDS_KEPT]:
            self._path(old).unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number}.safetensors"

    def _rounds(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        found = [FILE_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        return [int(match[1]) for match in found if match]
