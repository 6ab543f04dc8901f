"""A site's record of its masks, on its own disk, so that a restart forgets nothing.

A site masks at most once in each context. Of each question of a run it helps to unmask one total,
over one set of sites, however many attempts, sessions and restarts there are. The same total may be
unmasked again, since a server that goes on after a fault needs it again.

Totals over two sets of sites tell, by their difference, about the sites in which the sets differ,
whatever runs they are of. So of all sets that a site's data were in, no combination may be about
fewer sites than the threshold (``tells_too_much``); a set that would make one is refused.

Lines are written before what they allow leaves the site, and lines about unmasking are on the disk.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedminmax.core.errors import InputError
from fedminmax.core.files import held
from fedminmax.core.json_log import JsonLog
from fedminmax.network.secure.messages import Context
from fedminmax.network.wire.codec import RefusedError

MASKS_FILE = "masks.jsonl"
LOCK_TIMEOUT = 10.0
# So many combinations of sites are looked at in well under a second.
MAX_COMBINATIONS = 5_000


class Did(Enum):
    """What a site did about an answer."""

    MASKED = "masked"
    UNMASKED = "unmasked"


@dataclass(frozen=True)
class Total:
    """What a total is of: the hash of the whole question (``question_digest``), and the sites."""

    digest: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class MaskEntry:
    """What a site did: when, in which run (by name) and session, about which data and total."""

    time: str
    did: Did
    _: KW_ONLY
    name: str
    session: str
    data: str
    context: Context
    total: Total

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.context.round

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line of the record."""
        numbers = (int(entry[name]) for name in ("run", "round", "phase", "attempt"))
        return cls(
            str(entry["time"]),
            Did(entry["did"]),
            name=str(entry["name"]),
            session=str(entry["session"]),
            data=str(entry["data"]),
            context=Context(str(entry["question"]), *numbers),
            total=Total(str(entry["digest"]), tuple(map(str, entry["sites"]))),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line of the record."""
        about = {"time": self.time, "did": self.did.value, "name": self.name}
        whose = {"session": self.session, "data": self.data}
        return about | whose | vars(self.context) | vars(self.total)


@dataclass(frozen=True)
class Ownership:
    """Whose record it is about: the run, the data, and what the site's policy says of other sets.

    ``data`` is a digest of the table. With ``allows_other_sets`` sets of sites may differ in any
    number of sites.
    """

    run: str
    data: str
    threshold: int
    allows_other_sets: bool = False


class MaskLedger:
    """The record of one site, shared by all its jobs.

    Args:
        folder: where the site keeps things between rounds.
        about: this job's run, its data, and the site's policy.
        session: this session's name.
    """

    def __init__(self, folder: Path, about: Ownership, session: bytes) -> None:
        self._log = JsonLog(folder / MASKS_FILE, MaskEntry)
        self._about, self._session = about, session.hex()
        self._read_until = 0
        self._masked: set[Context] = set()
        self._unmasked: dict[Context, Total] = {}
        self._sets: set[frozenset[str]] = set()

    def note_mask(self, context: Context, total: Total) -> None:
        """Allow a mask in this context and write it down, or refuse it."""
        with self._up_to_date():
            self._check(context, total)
            if context in self._masked:
                raise RefusedError(
                    f"this site has masked its answer to {context}, attempt {context.attempt}, "
                    "and does not mask it again"
                )
            self._append(context, total, Did.MASKED)

    def note_unmask(self, context: Context, total: Total) -> None:
        """Allow this total and write it down, or refuse it."""
        with self._up_to_date():
            self._check(context, total)
            self._append(context, total, Did.UNMASKED)

    def _check(self, context: Context, total: Total) -> None:
        before = self._unmasked.get(context.topic)
        if before is not None and before != total:
            what = "another question" if before.sites == total.sites else "other sites"
            raise RefusedError(
                f"this site has helped to unmask the answers to {context}, and does not help with "
                f"a total of {what}"
            )
        sites = frozenset(total.sites)
        if self._about.allows_other_sets or sites in self._sets:
            return
        if tells_too_much(sorted(self._sets, key=sorted), sites, self._about.threshold):
            missing = sorted(sites.union(*self._sets) - sites.intersection(*self._sets))
            raise RefusedError(
                f"this site's data were in totals over other sites ({', '.join(missing)} make the "
                f"difference); the two together would tell about fewer than "
                f"{self._about.threshold} sites: bring all of them back, or set "
                "allow_other_sites in this site's settings"
            )

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """Hold the file, and know what this and other jobs have written."""
        with held(self._log.path.with_suffix(".lock"), LOCK_TIMEOUT) as ours:
            if not ours:
                raise RefusedError("this site's record of masks is in use; ask again")
            self._read_on()
            yield

    def _append(self, context: Context, total: Total, did: Did) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = MaskEntry(
            when,
            did,
            name=self._about.run,
            session=self._session,
            data=self._about.data,
            context=context,
            total=total,
        )
        # Masks end with the process that has the session's keys, power cut or not.
        self._log.add(entry, sync=did is Did.UNMASKED)

    def _read_on(self) -> None:
        """Read on; of a line that a crash cut off, what it allows was not sent."""
        try:
            entries, self._read_until = self._log.read_on(self._read_until)
        except InputError as error:
            raise RefusedError(
                "this site's record of masks is damaged; its administrator has to look"
            ) from error
        for entry in entries:
            if entry.did is Did.MASKED and entry.session == self._session:
                self._masked.add(entry.context)
            if entry.did is Did.UNMASKED and entry.name == self._about.run:
                self._unmasked.setdefault(entry.context.topic, entry.total)
            if entry.did is Did.UNMASKED and entry.data == self._about.data:
                self._sets.add(frozenset(entry.total.sites))


def tells_too_much(
    earlier: Sequence[frozenset[str]], sites: frozenset[str], threshold: int
) -> bool:
    """Return whether a total over these sites, with the earlier ones, can tell of too few sites.

    A combination of totals is about the sites whose coefficients do not add up to 0. One that
    takes the new total leaves out all but the sites of S exactly if the new set, restricted to the
    other sites, is a combination of the earlier ones. What takes too long to find out counts as
    too much.

    >>> four, three = frozenset("abcd"), frozenset("abc")
    >>> tells_too_much([], four, 3), tells_too_much([four], three, 3)
    (False, True)
    >>> tells_too_much([four], frozenset("aefg"), 3)
    False
    """
    everyone = sorted(frozenset().union(sites, *earlier))
    if len(sites) < threshold:
        return True
    if not earlier:
        return False
    if math.comb(len(everyone), threshold - 1) > MAX_COMBINATIONS:
        return len(earlier) > 1 or len(earlier[0] ^ sites) < threshold
    old = np.array([[site in own for site in everyone] for own in earlier], dtype=float)
    both = np.vstack([old, [site in sites for site in everyone]])
    return any(
        np.linalg.matrix_rank(np.delete(both, few, axis=1))
        == np.linalg.matrix_rank(np.delete(old, few, axis=1))
        for few in combinations(range(len(everyone)), threshold - 1)
    )
