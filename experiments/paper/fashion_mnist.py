"""FashionMNIST: 28 x 28 grey images of clothing, with the ten labels as protected groups.

Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for benchmarking machine learning
algorithms, 2017; 60,000 training and 10,000 test images, MIT licence. Papadaki et al. 2021,
Appendix B, make each label a group.

The files are in the IDX format of the MNIST family, plain or gzipped. They are looked up on this
machine, or downloaded from their publisher with a progress bar, and verified by their content.
"""

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.cli.main import say
from fedminmax.cli.terminal import display
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose, numpy_stream

CHUNK_BYTES = 2**17
READ_TIMEOUT_SECONDS = 30
GROUP_NAMES = (
    "T-shirt",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
PUBLISHER = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DEBIAN_PACKAGE = "dataset-fashion-mnist"
# Mean and deviation of a pixel, from 0 to 1, over the training images.
PIXEL_MEAN = 0.2860
PIXEL_DEVIATION = 0.3530


@dataclass(frozen=True)
class IdxFile:
    """A known file: its name, its array's shape and the digest of its content.

    An IDX file of bytes starts with 0, 0, 8, the number of dimensions, and one big-endian 32-bit
    size per dimension; the bytes follow. A file is identified by SHA-256, not by name. The digest
    is that of the uncompressed content, because mirrors recompress archives.
    """

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """The bytes that the content must begin with."""
        sizes = b"".join(size.to_bytes(4, "big") for size in self.shape)
        return bytes([0, 0, 8, len(self.shape)]) + sizes


def find_idx_file(folder: Path, file: IdxFile) -> Path | None:
    """Return the path of this file in the folder, gzipped or plain."""
    candidates = (folder / f"{file.name}.gz", folder / file.name)
    return next((path for path in candidates if path.is_file()), None)


def read_idx_file(path: Path, file: IdxFile, family: tuple[IdxFile, ...]) -> NDArray[np.uint8]:
    """Return the file's array; an error names the file and what is wrong with it."""
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
    """Describe how a file's content differs from what its name says."""
    for other in family:
        if digest == other.sha256:
            return f"holds the content of {other.name}"
    expected = len(file.header) + int(np.prod(file.shape))
    if len(content) != expected:
        return f"has {len(content)} bytes inside instead of {expected}"
    return f"is corrupt (SHA-256 {digest[:12]}... instead of {file.sha256[:12]}...)"


@dataclass(frozen=True)
class Fetched:
    """Progress of a download in bytes; ``total`` is what the server announced, or 0."""

    name: str
    done: int
    total: int


TRAIN_IMAGES = IdxFile(
    "train-images-idx3-ubyte",
    (60_000, 28, 28),
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
)
TRAIN_LABELS = IdxFile(
    "train-labels-idx1-ubyte",
    (60_000,),
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
)
TEST_IMAGES = IdxFile(
    "t10k-images-idx3-ubyte",
    (10_000, 28, 28),
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
)
TEST_LABELS = IdxFile(
    "t10k-labels-idx1-ubyte",
    (10_000,),
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


@dataclass(frozen=True, eq=False)
class FashionMnist:
    """Training and test rows: standardised images [n, 1, 28, 28], label and group alike."""

    train: Examples
    test: Examples


def folders_to_search(data_dir: Path | None) -> list[Path]:
    """Return where to look: the user's folder first, then Debian's package, then the cache."""
    chosen = [data_dir] if data_dir else []
    if os.environ.get("FEDMINMAX_DATA"):
        chosen.append(Path(os.environ["FEDMINMAX_DATA"]))
    # A folder for all data sets may have a subfolder for this one.
    named = [folder / name for folder in chosen for name in ("", "fashion-mnist")]
    return [*named, DEBIAN_FOLDER, cache_folder()]


def cache_folder() -> Path:
    """Return where downloads are stored for later runs of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fedminmax" / "fashion-mnist"


def missing_files(folder: Path) -> list[str]:
    """Return the names of the files that are missing in the folder."""
    return [file.name for file in FILES if find_idx_file(folder, file) is None]


def find_fashion_mnist(folders: list[Path], target: Path) -> Path | None:
    """Return the first folder with all four files; None if they must be downloaded to the target.

    A target with only some of them is completed: a download may have stopped there. Any other
    folder with only some is refused.
    """
    for folder in folders:
        missing = missing_files(folder)
        if not missing:
            return folder
        if len(missing) == len(FILES) or folder == cache_folder():
            continue
        if folder == target:
            return None
        raise InputError(
            f"{folder} lacks {', '.join(missing)} (.gz or plain); add what is missing, or give "
            "another folder"
        )
    return None


def download_fashion_mnist(folder: Path, publisher: str = PUBLISHER) -> Iterator[Fetched]:
    """Download the files that are missing in the folder, and yield the progress.

    A file gets its name only after its content was verified.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        if find_idx_file(folder, file) is not None:
            continue
        path = folder / f"{file.name}.gz"
        url, partial = f"{publisher}/{path.name}", path.with_name(f"partial-{path.name}")
        try:
            yield from _fetch(url, partial)
            read_idx_file(partial, file, FILES)
            partial.replace(path)
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", "") or str(error) or type(error).__name__
            raise InputError(f"cannot download {url} ({reason}); try again") from error
        except InputError as error:
            raise InputError(f"{url} is not the published file ({error}); try again") from error
        finally:
            partial.unlink(missing_ok=True)


def _fetch(url: str, path: Path) -> Iterator[Fetched]:
    # The address is the publisher's constant, or one chosen by the caller.
    with urllib.request.urlopen(url, timeout=READ_TIMEOUT_SECONDS) as answer:  # noqa: S310
        done, total = 0, int(answer.headers.get("Content-Length") or 0)
        with path.open("wb") as file:
            while piece := answer.read(CHUNK_BYTES):
                file.write(piece)
                done += len(piece)
                yield Fetched(path.name.removeprefix("partial-"), done, total)


def where_to_get_it(data_dir: Path | None) -> str:
    """Return what a user without the files and without a network can do."""
    return (
        f"install Debian's package {DEBIAN_PACKAGE}, or put the four files "
        f"{', '.join(file.name + '.gz' for file in FILES)} in {data_dir or cache_folder()}"
    )


def load_fashion_mnist(folder: str | Path) -> FashionMnist:
    """Read and check the four files."""
    folder = Path(folder)
    train = _examples(_read(folder, TRAIN_IMAGES), _read(folder, TRAIN_LABELS))
    return FashionMnist(train, _examples(_read(folder, TEST_IMAGES), _read(folder, TEST_LABELS)))


def choose_rows(examples: Examples, rows: int, seed: int) -> Examples:
    """Draw the same number of rows from each group; all rows are returned unchanged."""
    groups = len(GROUP_NAMES)
    if rows % groups or not groups <= rows <= len(examples):
        raise InputError(
            f"rows = {rows}; give a multiple of {groups} from {groups} to {len(examples)}"
        )
    if rows == len(examples):
        return examples
    generator = numpy_stream(seed, Purpose.DATA)
    by_group = [np.flatnonzero(examples.group.numpy() == a) for a in range(groups)]
    drawn = [generator.choice(positions, rows // groups, replace=False) for positions in by_group]
    return examples.rows(torch.from_numpy(np.sort(np.concatenate(drawn))))


def _read(folder: Path, file: IdxFile) -> NDArray[np.uint8]:
    path = find_idx_file(folder, file)
    if path is None:
        raise InputError(f"{folder} has no {file.name}.gz; {where_to_get_it(folder)}")
    return read_idx_file(path, file, FILES)


def _examples(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Examples:
    y = torch.from_numpy(labels.astype(np.int64))
    return Examples(_standardised(torch.from_numpy(images.copy())), y, y)


def _standardised(images: Tensor) -> Tensor:
    pixels = images.unsqueeze(1).to(torch.float32).div_(255.0)
    return pixels.sub_(PIXEL_MEAN).div_(PIXEL_DEVIATION)


def fashion_mnist(data_dir: Path | None) -> FashionMnist:
    """Load the images from this machine; download them first if they are not on it."""
    if data_dir is not None and data_dir.exists() and not data_dir.is_dir():
        raise InputError(f"{data_dir} is a file; give the folder of the four files as --data-dir")
    target = data_dir or cache_folder()
    folder = find_fashion_mnist(folders_to_search(data_dir), target)
    if folder is None:
        _download(target, data_dir)
        folder = target
    elif data_dir is not None and data_dir not in (folder, folder.parent):
        say(f"{data_dir} has no FashionMNIST; using {folder}")
    return load_fashion_mnist(folder)


def _download(folder: Path, data_dir: Path | None) -> None:
    try:
        with display("download FashionMNIST", len(FILES)) as bars:
            names: list[str] = []
            for step in download_fashion_mnist(folder):
                if step.name not in names:
                    names.append(step.name)
                    bars.describe(step.name)
                bars.show_work(len(names) - 1 + step.done / (step.total or step.done))
    except InputError as error:
        missing = missing_files(folder)
        lacks = "FashionMNIST is not on this machine"
        if len(missing) < len(FILES):
            lacks = f"{folder} lacks {', '.join(missing)}"
        raise InputError(f"{lacks} and {error}, or {where_to_get_it(data_dir)}") from error
