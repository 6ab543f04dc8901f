"""Download a file in pieces that survive an interruption, and check it before it gets its name."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from fedminmax.core.errors import InputError

BYTES_PER_PIECE = 2**17
SECONDS_OF_SILENCE = 30


@dataclass(frozen=True)
class RemoteFile:
    """A file at its publisher's: its address, and the checksum published with it."""

    url: str
    md5: str


@dataclass(frozen=True)
class Fetched:
    """How far a download is, in bytes; ``total`` is what the server announced, or 0."""

    name: str
    done: int
    total: int


def download(remote: RemoteFile, path: Path) -> Generator[Fetched]:
    """Fetch the file to ``path`` and yield how far it is after each piece.

    What arrived is kept beside under another name and completed by the next call.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    try:
        yield from _fetch_rest(remote, beside)
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise InputError(f"cannot download {remote.url} ({_reason(error)}); try again") from error
    _check(remote, beside)
    beside.replace(path)


def _fetch_rest(remote: RemoteFile, beside: Path) -> Iterator[Fetched]:
    there = beside.stat().st_size if beside.exists() else 0
    # The address is the publisher's constant, or one that the caller chose.
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={there}-"})  # noqa: S310
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS_OF_SILENCE)  # noqa: S310
    except urllib.error.HTTPError as error:
        if there and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing: the checksum decides
        raise
    with answer:
        # A server that does not know ranges sends everything from the start.
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            there = 0
        announced = answer.headers.get("Content-Length")
        total = there + int(announced) if announced else 0
        with beside.open("ab" if there else "wb") as file:
            while piece := answer.read(BYTES_PER_PIECE):
                file.write(piece)
                there += len(piece)
                yield Fetched(remote.url.rsplit("/", 1)[-1], there, total)
    if there < total:
        raise InputError(
            f"the download of {remote.url} broke off after {there} of {total} bytes; "
            "try again to go on from there"
        )


def _check(remote: RemoteFile, beside: Path) -> None:
    """Remove what is not the published file: the next call must not build on it."""
    # A published checksum against damage on the way, not a safeguard against forgery.
    digest = hashlib.md5(beside.read_bytes(), usedforsecurity=False).hexdigest()
    if digest != remote.md5:
        beside.unlink()
        raise InputError(
            f"{remote.url} gave a file with MD5 {digest} instead of {remote.md5}; try again later"
        )


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", "")) or str(error) or type(error).__name__
