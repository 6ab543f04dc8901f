"""Files in the IDX format of the MNIST family, plain or gzipped, known by their content.

An IDX file of bytes starts with 0, 0, 8, the number of dimensions, and one big-endian 32-bit size
per dimension; the bytes follow. What a file is, its SHA-256 decides and not its name: archives
are recompressed by those who pass them on, so the digest is that of the content inside.
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError


@dataclass(frozen=True)
class IdxFile:
    """A file that we know: its name, its array's shape and the digest of its content."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """The bytes that the content must begin with."""
        sizes = b"".join(size.to_bytes(4, "big") for size in self.shape)
        return bytes([0, 0, 8, len(self.shape)]) + sizes


def find_idx_file(folder: Path, file: IdxFile) -> Path | None:
    """Return where this file lies in the folder, gzipped or plain."""
    candidates = (folder / f"{file.name}.gz", folder / file.name)
    return next((path for path in candidates if path.is_file()), None)


def read_idx_file(path: Path, file: IdxFile, family: tuple[IdxFile, ...]) -> NDArray[np.uint8]:
    """Return the file's array, or say by name what is wrong with it."""
    content = _content(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise InputError(f"{path} {_fault(content, digest, file, family)}; replace it")
    return np.frombuffer(content, np.uint8, offset=len(file.header)).reshape(file.shape)


def _content(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as stream:
                return stream.read()
        return path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is truncated or corrupt ({error}); replace it") from error


def _fault(content: bytes, digest: str, file: IdxFile, family: tuple[IdxFile, ...]) -> str:
    """Say what a file is instead of what its name promises."""
    for other in family:
        if digest == other.sha256:
            return f"holds the content of {other.name}"
    expected = len(file.header) + int(np.prod(file.shape))
    if len(content) != expected:
        return f"has {len(content)} bytes inside instead of {expected}"
    return f"is corrupt (SHA-256 {digest[:12]}... instead of {file.sha256[:12]}...)"
