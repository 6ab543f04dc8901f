"""A site's record of its masks, on its own disk, so that a restart forgets nothing.

A site masks at most once in each context. Of each question of a run it helps to unmask the answers
to one order by one set of sites in one rounding, however many attempts, sessions and restarts there
are: totals over two sets would show what the difference of the sets answered, and of numbers that
each site rounds coarsely a total shows who has the large ones. The same total may be unmasked
again, since a server that goes on after a fault needs it again.

Lines are written before what they allow leaves the site, and lines about unmasking are on the disk.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

from fedminmax.core.errors import InputError
from fedminmax.core.files import held
from fedminmax.core.json_log import JsonLog
from fedminmax.federation.secure.messages import Context
from fedminmax.federation.wire.codec import RefusedError

MASKS_FILE = "masks.jsonl"
LOCK_TIMEOUT = 10.0


class Did(Enum):
    """What a site did about an answer."""

    MASKED = "masked"
    UNMASKED = "unmasked"


@dataclass(frozen=True)
class Total:
    """What a total is of: the hash of the order, the sites, and the hash of their rounding.

    Lines of earlier versions do not say how numbers were rounded.
    """

    order: str
    sites: tuple[str, ...]
    layout: str = ""


@dataclass(frozen=True)
class MaskEntry:
    """What a site did: when, in which run (by name) and session, and about which total."""

    time: str
    did: Did
    _: KW_ONLY
    name: str
    session: str
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
        context = Context(str(entry["question"]), *numbers)
        layout = str(entry.get("layout", ""))
        total = Total(str(entry["order"]), tuple(map(str, entry["sites"])), layout)
        when, name, session = (str(entry[name]) for name in ("time", "name", "session"))
        return cls(
            when, Did(entry["did"]), name=name, session=session, context=context, total=total
        )

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line of the record."""
        about = {"time": self.time, "did": self.did.value}
        whose = {"name": self.name, "session": self.session}
        return about | whose | vars(self.context) | vars(self.total)


class MaskLedger:
    """The record of one site, shared by all its jobs.

    Args:
        folder: where the site keeps things between rounds.
        run: the name of this job's run.
        session: this session's name.
    """

    def __init__(self, folder: Path, run: str, session: bytes) -> None:
        self._log = JsonLog(folder / MASKS_FILE, MaskEntry)
        self._run, self._session = run, session.hex()
        self._read_until = 0
        self._masked: set[Context] = set()
        self._unmasked: dict[Context, Total] = {}

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
            before = self._unmasked.get(context.topic)
            # Masks may be tried with a finer rounding first, which did not fit at some site.
            if before is not None and before.layout not in ("", total.layout):
                raise _no_second_total(context, "another rounding")
            self._append(context, total, Did.UNMASKED)

    def _check(self, context: Context, total: Total) -> None:
        before = self._unmasked.get(context.topic)
        if before is not None and before.order != total.order:
            raise _no_second_total(context, "another order")
        if before is not None and before.sites != total.sites:
            raise _no_second_total(context, "other sites")

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
            when, did, name=self._run, session=self._session, context=context, total=total
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
            if entry.did is Did.UNMASKED and entry.name == self._run:
                self._unmasked.setdefault(entry.context.topic, entry.total)


def _no_second_total(context: Context, what: str) -> RefusedError:
    return RefusedError(
        f"this site has helped to unmask the answers to {context}, and does not help with a "
        f"total of {what}"
    )
