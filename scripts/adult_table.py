"""Writes the Adult data that ship with the package as one CSV file of 40 sites, for the demo.

Sites get equal shares of the rows at random. ``fnlwgt`` (a survey weight) and ``education`` (the
same fact as ``education-num``) are left out, as in ``fedminmax.data.adult``.

usage: python scripts/adult_table.py FILE
"""

import csv
import io
import sys
from pathlib import Path

import numpy as np

from fedminmax.core.files import write_text
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

SITES = 40
COLUMNS = (*NUMBERS, *CATEGORIES, *PROTECTED, "income")


def adult_table() -> str:
    """Return both published files as one table, with a column that names the site."""
    parts = [parse_rows(read_packed(packed_folder(), file)) for file in (TRAIN, TEST)]
    columns = [np.concatenate([part[name] for part in parts]) for name in COLUMNS]
    places = np.random.default_rng(0).permutation(len(columns[0])) % SITES
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["site", *COLUMNS])
    for place, *row in zip(places, *columns, strict=True):
        writer.writerow([f"site-{place + 1:02}", *row])
    return text.getvalue()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, adult_table())
