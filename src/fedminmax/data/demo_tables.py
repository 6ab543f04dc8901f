"""Tables for a first look, as CSV texts: three simulated hospitals, and Adult over forty sites.

The hospitals are made up so that a standard model fails a group that is rare at each of them.
Nausea is common in women with an infarction and harmless in men (Canto et al., "Association of age
and sex with myocardial infarction symptom presentation", JAMA 2012, has the real frequencies), and
six of 100 patients are women, as in hospitals for veterans.

Adult is as in ``fedminmax.data.adult``, without ``fnlwgt`` (a survey weight) and ``education`` (the
same fact as ``education-num``). Its sites get equal shares of the rows at random.
"""

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedminmax.data.adult import (
    CATEGORIES,
    NUMBERS,
    PROTECTED,
    TEST,
    TRAIN,
    packed_folder,
    parse_rows,
    read_packed,
)

# Rows, and the share of women.
HOSPITALS = {"north": (12_000, 0.05), "south": (10_000, 0.06), "west": (8_000, 0.08)}
PATIENT = ("sex", "age", "chest_pain", "nausea", "ecg", "infarction")
SITES = 40
COLUMNS = (*NUMBERS, *CATEGORIES, *PROTECTED, "income")


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
    columns = [np.concatenate([part[name] for part in parts]) for name in COLUMNS]
    places = np.random.default_rng(0).permutation(len(columns[0])) % SITES
    sites = (f"site-{place + 1:02}" for place in places)
    return _table(("site", *COLUMNS), zip(sites, *columns, strict=True))


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(rows)
    return text.getvalue()
