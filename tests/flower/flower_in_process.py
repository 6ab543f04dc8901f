"""Flower's Grid in this process: messages go straight to ClientApps, each with its own context."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from fedminmax.flower import Rows, server_app
from fedminmax.runs.train import train_tables

SITES = ("north", "south", "west")
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = 0.2
[data.sites]
north = "north.csv"
south = "south.csv"
west = "west.csv"
[groups]
columns = ["sex"]
values = {{ sex = ["Female", "Male"] }}
minimum_size = 0
[features.age]
kind = "numeric"
[features.dose]
kind = "numeric"
[model]
kind = "{kind}"
[method]
name = "fedminmax-fast"
rounds = 4
"""
# Scores of test records are in single precision.
TOLERANCES = {"rounds.jsonl": 1e-9, "results.json": 1e-7}
# Numbers that each file has for the second group, whatever the method and however few its rounds.
COMPARED = {"rounds.jsonl": "0 risks 1", "results.json": "0 test metrics risk by_group 1 value"}
# What depends on the machine, or what masks hide; and what a gap between nearly equal numbers is
# divided by or multiplied with, which rounding moves further.
OTHER = (
    *("seconds", "finished", "sites", "cost", "notes", "participants", "reach"),
    *("secure_aggregation", "remaining", "min_mean"),
)


def make_rows(site: str) -> Rows:
    """One site's records."""
    random = np.random.default_rng(SITES.index(site))
    age = random.integers(20, 90, 150).astype(float)
    dose = random.integers(0, 4, 150).astype(float)
    woman = random.random(150) < 0.4
    ill = random.logistic(size=150) < np.sin(age / 12) * (1.5 - woman) + dose - 1.5
    return Rows(
        x=np.column_stack([age, dose]),
        y=np.where(ill, "yes", "no"),
        group=np.where(woman, "Female", "Male"),
    )


def write_config(folder: Path, kind: str = "logistic") -> Path:
    """Write the configuration, and each site's records as a file."""
    for site in SITES:
        rows = make_rows(site)
        lines = [
            f"{age},{dose},{sex},{ill}"
            for (age, dose), sex, ill in zip(
                np.asarray(rows.x), np.asarray(rows.group), np.asarray(rows.y), strict=True
            )
        ]
        text = "\n".join(["age,dose,sex,ill", *lines]) + "\n"
        (folder / f"{site}.csv").write_text(text, encoding="utf-8")
    path = folder / "fedminmax.toml"
    path.write_text(CONFIG.format(kind=kind), encoding="utf-8")
    return path


class GridHere:
    """Answers at once; what a node replies may be replaced."""

    def __init__(self, folder: Path, app: ClientApp) -> None:
        # As in a process of Flower: who sends messages.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app = app
        self.contexts = {
            number: Context(
                run_id=1,
                node_id=number,
                node_config={
                    "site": site,
                    "data": str(folder / f"{site}.csv"),
                    "folder": str(folder / f"{site}-kept"),
                },
                state=RecordDict(),
                run_config={},
            )
            for number, site in enumerate(SITES, start=10)
        }
        self.replies: dict[str, Message] = {}
        self.asked: list[str] = []

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            numbers.append(str(uuid4()))
            message.metadata.__dict__["_message_id"] = numbers[-1]
            self.asked.append(message.metadata.message_type)
            self.replies[numbers[-1]] = self.reply(message)
        return numbers

    def reply(self, message: Message) -> Message:
        """What a node sends back."""
        try:
            return self.app(message, self.contexts[message.metadata.dst_node_id])
        except ValueError as error:
            return Message(Error(1, str(error)), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def run(self, config: Path, out: Path, **settings: Any) -> None:
        """Run the server."""
        run_config = {"out": str(out), **settings}
        context = Context(
            run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=run_config
        )
        grid: Any = self
        server_app(config)(grid, context)


def answering(record: dict[str, Any], message: Message) -> Message:
    """A reply with this content."""
    return Message(RecordDict({"fedminmax": ConfigRecord(record)}), reply_to=message)


def simulate(config: Path, folder: Path) -> Path:
    """Run the configuration in this process; return its folder."""
    train_tables(config, folder=folder)
    return folder


def assert_same_run(flower: Path, simulated: Path) -> None:
    """Compare all rounds and all results of the method and of its baseline."""
    assert (flower / "baseline").exists() == (simulated / "baseline").exists()
    for place in [place for place in ("", "baseline") if (simulated / place).exists()]:
        for name, tolerance in TOLERANCES.items():
            ours, theirs = (_numbers(folder / place / name) for folder in (flower, simulated))
            assert f"{name} {COMPARED[name]}" in ours
            assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


def _numbers(path: Path) -> dict[str, float]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    return dict(_flat([json.loads(line) for line in lines], path.name))


def _flat(content: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(content, dict | list):
        entries = content.items() if isinstance(content, dict) else enumerate(content)
        for name, value in entries:
            if name not in OTHER:
                yield from _flat(value, f"{path} {name}")
    elif isinstance(content, int | float):
        yield path, float(content)
