"""Data that come with the package: Adult (Census Income), and tables for a first look.

Adult: 48,842 adults of the 1994 US census, with sex x race as ten groups.
Becker, Kohavi: Adult, UCI Machine Learning Repository, 1996, doi.org/10.24432/C5XW20, CC BY 4.0.
The files come with the package (``adult_files``), as published, so this needs no network.

Features: five numbers, standardised by the training rows' mean and deviation, and five categories,
one-hot encoded with the values of the training file; "?" (missing) is a value like any other. Not
used: ``fnlwgt``, a survey weight that says how many people a row represents and nothing about the
person, and ``education``, which is ``education-num`` as text. Sex and race define the groups and
are features only on request; ``relationship`` still distinguishes a husband from a wife. As a table
its rows are on forty sites, with equal shares at random.

Three hospitals are simulated so that a standard model fails a group that is rare at each of them.
Nausea is common in women with an infarction and harmless in men (Canto et al., "Association of age
and sex with myocardial infarction symptom presentation", JAMA 2012, has the real frequencies), and
six of 100 patients are women, as in hospitals for veterans.
"""

import csv
import hashlib
import io
import lzma
from collections.abc import Iterable, Mapping, Sequence
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


# Rows, and the share of women.
HOSPITALS = {"north": (12_000, 0.05), "south": (10_000, 0.06), "west": (8_000, 0.08)}
PATIENT = ("sex", "age", "chest_pain", "nausea", "ecg", "infarction")
SITES = 40
TABLE_COLUMNS = (*NUMBERS, *CATEGORIES, *PROTECTED, "income")


def hospital_tables(seed: int = 0) -> dict[str, str]:
    """Return the tables of the simulated hospitals by name."""
    generator = np.random.default_rng(seed)
    return {
        name: _table(PATIENT, zip(*_patients(generator, rows, share), strict=True))
        for name, (rows, share) in HOSPITALS.items()
    }


def _patients(
    generator: np.random.Generator, rows: int, women: float
) -> Sequence[NDArray[np.generic]]:
    """Draw patients, a column for each name in ``PATIENT``."""
    female = generator.random(rows) < women
    age = generator.integers(35, 90, rows)
    pain = generator.random(rows) < np.where(female, 0.2, 0.45)
    nausea = generator.random(rows) < np.where(female, 0.6, 0.08)
    ecg = np.round(generator.gamma(1.5, 0.8, rows), 1)
    score = -3.2 + 2.6 * pain + 0.9 * ecg + (age - 60) / 20 + nausea * np.where(female, 3.5, -0.3)
    ill = generator.random(rows) < 1 / (1 + np.exp(-score))
    sex = np.where(female, "female", "male")
    return sex, age, _words(pain), _words(nausea), ecg, _words(ill)


def _words(truth: NDArray[np.bool_]) -> NDArray[np.str_]:
    return np.where(truth, "yes", "no")


def adult_table() -> str:
    """Return both published files as one table, with a column that names the site."""
    parts = [parse_rows(read_packed(packed_folder(), file)) for file in (TRAIN, TEST)]
    columns = [np.concatenate([part[name] for part in parts]) for name in TABLE_COLUMNS]
    places = np.random.default_rng(0).permutation(len(columns[0])) % SITES
    sites = (f"site-{place + 1:02}" for place in places)
    return _table(("site", *TABLE_COLUMNS), zip(sites, *columns, strict=True))


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(rows)
    return text.getvalue()
