"""Rows of a table held out for testing, and rows set aside for validation, by each holder alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ListedRows:
    """The share of its rows that each holder was to put apart, and the numbers of those rows.

    Numbers are places in the holder's file, counted from 1 without the header.
    """

    share: float
    rows: Mapping[str, Positions]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def as_json(self) -> dict[str, object]:
        """Return the same as plain data."""
        numbers = {name: own.tolist() for name, own in self.rows.items()}
        return {"share": self.share, "rows": numbers}


def write_held_out(path: Path, seed: int, held_out: ListedRows, validation: ListedRows) -> None:
    """List which rows were held out and set aside, so that others can check what rests on them.

    There are numbers and no values.
    """
    about = (
        "numbers of the rows held out for testing, and under validation of those that chose the "
        "round, from 1 in each holder's file, without the header; blank lines count"
    )
    content = {"format": 1, "about": about, "seed": seed, **held_out.as_json()}
    if len(validation):
        content["validation"] = validation.as_json()
    write_text(path, json.dumps(content) + "\n")
