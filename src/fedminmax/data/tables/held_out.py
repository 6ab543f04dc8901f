"""Rows of a table held out for testing, and rows set aside for validation, by each holder alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedminmax.core.files import write_text
from fedminmax.core.randomness import Purpose
from fedminmax.data.strata import Positions, split_strata
from fedminmax.data.tables.parse_rows import ParsedRows

HELD_OUT_FILE = "held_out.json"


def hold_out(
    rows: ParsedRows, share: float, seed: int, holder: str, purpose: Purpose = Purpose.FOLDS
) -> tuple[Positions, Positions]:
    """Return the positions of training rows and of held-out rows, each ascending."""
    labels = rows.target if rows.target.dtype == np.int64 else np.zeros(len(rows), np.int64)
    strata = np.stack([rows.group, labels.astype(np.int64)])
    return split_strata(strata, share, seed, holder, purpose)


def write_held_out(
    path: Path, share: float, seed: int, holders: Mapping[str, Sequence[int] | Positions]
) -> None:
    """List which rows were held out, so that others can check the figures that rest on them.

    Numbers are places in the holder's file, counted from 1 without the header, and no values.
    """
    content = {
        "format": 1,
        "about": "numbers of the rows held out for testing, from 1 in each holder's file, without "
        "the header; blank lines count",
        "share": share,
        "seed": seed,
        "rows": {name: list(map(int, numbers)) for name, numbers in holders.items()},
    }
    write_text(path, json.dumps(content) + "\n")
