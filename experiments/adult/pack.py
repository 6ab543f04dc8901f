"""Compress the published files of Adult into the package, byte for byte the same inside.

    python -m experiments.adult.pack FOLDER

FOLDER has adult.data, adult.test and adult.names, plain or gzipped, as the UCI Machine Learning
Repository gives them (doi.org/10.24432/C5XW20).
"""

import argparse
import gzip
import hashlib
import lzma
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.data.adult import TEST, TRAIN, AdultFile

DESTINATION = Path("src/fedminmax/data/adult_files")
NAMES = AdultFile("adult.names", "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a")


def read_published(folder: Path, file: AdultFile) -> bytes:
    """Return a published file's content, or refuse what is not it."""
    zipped, plain = folder / f"{file.name}.gz", folder / file.name
    if not (zipped.exists() or plain.exists()):
        raise InputError(f"{folder} has no {file.name}, plain or .gz; give the published files")
    content = gzip.decompress(zipped.read_bytes()) if zipped.exists() else plain.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise InputError(f"{file.name} in {folder} is not the published file; download it again")
    return content


def pack(folder: Path, destination: Path) -> None:
    """Write the compressed rows and the donors' description."""
    destination.mkdir(parents=True, exist_ok=True)
    for file in (TRAIN, TEST):
        packed = lzma.compress(read_published(folder, file), preset=9 | lzma.PRESET_EXTREME)
        (destination / f"{file.name}.xz").write_bytes(packed)
    (destination / NAMES.name).write_bytes(read_published(folder, NAMES))


def main() -> None:
    """Pack, and print the sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the published files are")
    pack(parser.parse_args().folder, DESTINATION)
    for path in sorted(DESTINATION.iterdir()):
        print(f"{path.stat().st_size:>8,} bytes  {path}")


if __name__ == "__main__":
    main()
