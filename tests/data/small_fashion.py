"""An excerpt of FashionMNIST that comes with the tests, in the place of the published files.

Its names and its format are the same; the product knows files by their digests, so these take the
published ones' place.
"""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedminmax.data import fashion_mnist
from fedminmax.data.fashion_mnist import IdxFile

EXCERPT = Path(__file__).parent / "fashion_excerpt"
TRAIN_ROWS, TEST_ROWS = 600, 300
RECORDS = ("TRAIN_IMAGES", "TRAIN_LABELS", "TEST_IMAGES", "TEST_LABELS")


def use_excerpt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and functions of this process find and accept the excerpt."""
    files = tuple(_excerpt_of(file) for file in fashion_mnist.FILES)
    for name, file in zip(RECORDS, files, strict=True):
        monkeypatch.setattr(fashion_mnist, name, file)
    monkeypatch.setattr(fashion_mnist, "FILES", files)
    monkeypatch.setenv("FEDMINMAX_DATA", str(EXCERPT))


def _excerpt_of(file: IdxFile) -> IdxFile:
    content = gzip.decompress((EXCERPT / f"{file.name}.gz").read_bytes())
    # The first size is the number of rows.
    shape = (int(np.frombuffer(content, ">u4", count=1, offset=4)[0]), *file.shape[1:])
    return IdxFile(file.name, shape, hashlib.sha256(content).hexdigest())
