"""The demo's table of Adult: every published row once, over 40 sites of the same size."""

import csv
import io
from collections import Counter

import torch
from scripts.adult_table import adult_table

from fedminmax.data.adult import GROUP_NAMES, load_adult


def test_every_row_is_there_once_at_one_of_forty_sites() -> None:
    rows = list(csv.DictReader(io.StringIO(adult_table())))
    sites = Counter(row["site"] for row in rows)
    assert len(sites) == 40
    assert max(sites.values()) - min(sites.values()) <= 1
    adult = load_adult()
    groups = torch.cat([adult.train.group, adult.test.group])
    label = torch.cat([adult.train.y, adult.test.y])
    found = Counter((f"{row['sex']} / {row['race']}", row["income"] == ">50K") for row in rows)
    for number, name in enumerate(GROUP_NAMES):
        for outcome in (0, 1):
            expected = int(((groups == number) & (label == outcome)).sum())
            assert found[name, bool(outcome)] == expected
