"""The records of a site: its own table, or in the simulation a part of made-up ones."""

from pathlib import Path

import numpy as np
from flwr.app import Context

from fedminmax.flower import Rows

ROWS = 200


def load_data(context: Context) -> Rows | Path:
    """Return the table that the SuperNode names, or the part of this node."""
    if "data" in context.node_config:
        return Path(str(context.node_config["data"]))
    return make_rows(int(context.node_config["partition-id"]))


def make_rows(partition: int) -> Rows:
    """Make the records of one hospital: x, y and group."""
    random = np.random.default_rng(partition)
    age = random.normal(40 + 10 * partition, 12, ROWS).round(1)
    pressure = random.normal(120, 15, ROWS).round()
    woman = random.random(ROWS) < 0.3 + 0.1 * partition
    risk = (age - 45) / 8 + (pressure - 120) / (20 - 30 * woman) + woman
    ill = random.random(ROWS) < 1 / (1 + np.exp(-risk))
    return Rows(
        x=np.column_stack([age, pressure]),
        y=np.where(ill, "yes", "no"),
        group=np.where(woman, "Female", "Male"),
    )
