"""Arrays, data sets and data frames are other ways to hand over the same rows."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.losses import brier_loss
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of

X = torch.tensor([[0.5, -1.0], [2.0, 1.0], [-1.5, 0.0], [1.0, 1.0]])
Y = torch.tensor([0, 1, 1, 0])
# "m" and "f" in the order of their names are 1 and 0.
SEX = ["m", "f", "m", "m"]
GROUP = torch.tensor([1, 0, 1, 1])
HALVES = (slice(0, 2), slice(2, 4))


def trained(sites: Any, **settings: Any) -> tuple[Tensor, tuple[str, ...]]:
    model = nn.Linear(2, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    federation = Simulation(model, brier_loss, sites, **settings)
    method = FedMinMax(learning_rate=0.5)
    return list(train(federation, method, rounds=3))[-1].parameters(), federation.group_names


def frame(rows: slice, make: Any = pd.DataFrame, **further: Any) -> Any:
    columns = {"sick": Y[rows].tolist(), "a": X[rows, 0].tolist(), "sex": SEX[rows]}
    return make(columns | {"b": X[rows, 1].tolist()} | further)


EXPECTED, _ = trained([(X[rows], Y[rows], GROUP[rows]) for rows in HALVES])


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.longdouble, ">f4"])
def test_numpy_arrays_of_any_precision_are_sites(kind: Any) -> None:
    # Backwards, read-only and unsigned: torch takes none of these as they are.
    x, y = X.numpy().astype(kind)[::-1], Y.numpy().astype(np.uint8)[::-1]
    group = GROUP.numpy().astype(np.int16)[::-1]
    group.setflags(write=False)
    sites = [(x[rows][::-1], y[rows][::-1], group[rows][::-1]) for rows in HALVES[::-1]]
    assert torch.equal(trained(sites)[0], EXPECTED)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_data_frames_are_sites_and_name_their_groups(make: Any) -> None:
    # The second frame has its columns in another order.
    second = frame(HALVES[1], make)[["b", "sex", "a", "sick"]]
    found, names = trained([frame(HALVES[0], make), second], target="sick", group="sex")
    assert torch.equal(found, EXPECTED)
    assert names == ("f", "m")


def test_columns_that_make_groups_together_are_crossed() -> None:
    frames = [frame(rows, old=[rows.start > 0] * 2) for rows in HALVES]
    _, names = trained(frames, target="sick", group=["sex", "old"])
    assert names == ("f / False", "m / False", "m / True")


def test_validation_rows_may_be_data_frames() -> None:
    settings = {"target": "sick", "group": "sex"}
    rows = [(X[own], Y[own], GROUP[own]) for own in HALVES]
    expected, _ = trained(rows, validation=rows)
    frames = [frame(own) for own in HALVES]
    found, _ = trained(frames, validation=frames, **settings)
    assert torch.equal(found, expected)


FRAME, ROWS = frame(slice(0, 4)), (X, Y, GROUP)
NAMED = {"target": "sick", "group": "sex"}


@pytest.mark.parametrize(
    ("sites", "settings", "words"),
    [
        ([FRAME], {}, "name their columns, such as target='outcome', group='sex'"),
        ([FRAME], {"target": "sick"}, "group = None"),
        ([FRAME], {"target": "ill", "group": "sex"}, "site 0: there is no column 'ill'"),
        ([FRAME], {"target": "sick", "group": "sick"}, "not the target"),
        ([FRAME], {"target": "sick", "group": []}, "group = []"),
        ([FRAME, FRAME.drop(columns="b")], NAMED, "site 1: there is no column 'b'"),
        ([FRAME, FRAME.assign(c=1)], NAMED, "site 1: column 'c' is not in the data frame of"),
        ([FRAME.assign(a="x")], NAMED, "column 'a' holds str"),
        ([FRAME.assign(sick="no")], NAMED, "site 0: column 'sick' holds"),
        ([FRAME.assign(sex=["m", None, "f", "f"])], NAMED, "sex is missing in 1 of 4 rows"),
        ([FRAME.assign(a=[0.0, np.nan, 1.0, 2.0])], NAMED, "x is NaN or infinite in row 1"),
        ([FRAME[["sick", "sex"]]], NAMED, "no column besides target and group"),
        ([FRAME.rename(columns={"b": "a"})], NAMED, "two columns are named 'a'"),
        ([FRAME, ROWS], NAMED, "give all alike"),
        ([ROWS], NAMED, "columns of data frames"),
        ([FRAME], NAMED | {"group_names": ["f", "m"]}, "drop group_names"),
        (FRAME, NAMED, "sites is a DataFrame; give a list"),
        (X.numpy(), {}, "sites is a ndarray; give a list"),
        ([], NAMED, "columns of data frames"),
    ],
)
def test_frames_that_cannot_be_read(sites: Any, settings: Any, words: str) -> None:
    assert words in complaint_of(lambda: trained(sites, **settings))
