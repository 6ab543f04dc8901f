"""Adult (Census Income): 48,842 adults of the 1994 US census, with sex x race as ten groups.

Becker, Kohavi: Adult, UCI Machine Learning Repository, 1996, doi.org/10.24432/C5XW20, CC BY 4.0.
The files come with the package (``adult_files``), as published, so this needs no network.

Features: five numbers, standardised by the training rows' mean and deviation, and five categories,
one-hot encoded with the values of the training file; "?" (missing) is a value like any other. Not
used: ``fnlwgt``, a survey weight that says how many people a row represents and nothing about the
person, and ``education``, which is ``education-num`` as text. Sex and race define the groups and
are features only on request; ``relationship`` still distinguishes a husband from a wife.
"""

import csv
import hashlib
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples

Column = NDArray[np.str_]
COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORIES = ("workclass", "marital-status", "occupation", "relationship", "native-country")
PROTECTED = ("race", "sex")
SEXES = ("Female", "Male")
RACES = ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White")
GROUP_NAMES = tuple(f"{sex} / {race}" for sex in SEXES for race in RACES)
CLASS_NAMES = ("<=50K", ">50K")


@dataclass(frozen=True)
class AdultFile:
    """One published file: its name, and the digest of its content before compression."""

    name: str
    sha256: str


TRAIN = AdultFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d")
TEST = AdultFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05")


@dataclass(frozen=True, eq=False)
class Adult:
    """Training and test rows; label 1 is an income above 50,000 dollars."""

    train: Examples
    test: Examples
    group_names: tuple[str, ...]
    feature_names: tuple[str, ...]


def load_adult(*, include_protected: bool = False, folder: Traversable | None = None) -> Adult:
    """Read the files that came with the package.

    Args:
        include_protected: let the model see sex and race as features.
        folder: where the compressed files are, if not in the package.
    """
    where = folder or packed_folder()
    train, test = (parse_rows(read_packed(where, file)) for file in (TRAIN, TEST))
    columns = (*CATEGORIES, *PROTECTED) if include_protected else CATEGORIES
    vocabulary = {name: np.unique(train[name]) for name in columns}
    named = (f"{name}={value}" for name, known in vocabulary.items() for value in known)
    return Adult(
        _examples(train, train, vocabulary),
        _examples(test, train, vocabulary),
        GROUP_NAMES,
        (*NUMBERS, *named),
    )


def packed_folder() -> Traversable:
    """Return the package's folder with the compressed files."""
    return resources.files("fedminmax.data") / "adult_files"


def read_packed(folder: Traversable, file: AdultFile) -> str:
    """Return a file's text; raise an ``InputError`` if it is missing or damaged."""
    path = folder / f"{file.name}.xz"
    try:
        content = lzma.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; install fedminmax again") from error
    except lzma.LZMAError as error:
        raise InputError(f"{path} is damaged ({error}); install fedminmax again") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise InputError(
            f"{path} differs from the published file (SHA-256 {digest[:12]}... instead "
            f"of {file.sha256[:12]}...); install fedminmax again"
        )
    return content.decode("ascii")


def parse_rows(text: str) -> dict[str, Column]:
    """Return the columns of a published file.

    The test file begins with a line that is not a row, and its labels end with a full stop.

    >>> row = "39, ?, 7, 9th, 5, Divorced, ?, Wife, Black, Female, 0, 0, 40, Cuba, >50K."
    >>> parse_rows(row)["income"].tolist()
    ['>50K']
    """
    lines = (line for line in text.splitlines() if line and not line.startswith("|"))
    rows = csv.reader(lines, skipinitialspace=True)
    columns = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))
    return columns | {"income": np.char.rstrip(columns["income"], ".")}


def _examples(
    rows: Mapping[str, Column], train: Mapping[str, Column], vocabulary: Mapping[str, Column]
) -> Examples:
    numbers = [_standardised(rows[name], train[name]) for name in NUMBERS]
    columns = [rows[name][:, None] == known for name, known in vocabulary.items()]
    x = np.concatenate([np.stack(numbers, axis=1), *columns], axis=1, dtype=np.float32)
    sex, race = np.searchsorted(SEXES, rows["sex"]), np.searchsorted(RACES, rows["race"])
    return Examples(
        torch.from_numpy(x),
        torch.from_numpy((rows["income"] == CLASS_NAMES[1]).astype(np.int64)),
        torch.from_numpy((len(RACES) * sex + race).astype(np.int64)),
    )


def _standardised(column: Column, train: Column) -> NDArray[np.float64]:
    values, known = column.astype(np.float64), train.astype(np.float64)
    standardised: NDArray[np.float64] = (values - known.mean()) / known.std()
    return standardised
