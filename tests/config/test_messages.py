"""`--set section.key=value`: the text changes in this key alone, and reads as it should."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedminmax.config.messages import with_settings
from fedminmax.core.errors import InputError
from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import results_of, write_config, write_hospitals

TEXT = """\
# a comment
[data]
target = "y"  # what to predict
classes = [
    "no",  # [not a section]
    "yes",
]
seed = 3

[data.sites]
north = "north.csv"
"old town" = "old.csv"

[features."blood pressure"]
kind = "numeric"

[model]
hidden = [8, 8]
"""


def put(content: dict[str, Any], path: list[str], value: object) -> dict[str, Any]:
    """The content with another value, independently of the text."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    place = copy
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("data.seed=4", ["data", "seed"], 4),
        ("data.target=x", ["data", "target"], "x"),
        ('data.target="with = and # in it"', ["data", "target"], "with = and # in it"),
        ("data.target=with = and # in it", ["data", "target"], "with = and # in it"),
        ('data.classes=["a", "b"]', ["data", "classes"], ["a", "b"]),
        ("data.held_out=0.3", ["data", "held_out"], 0.3),
        ("data.merge_spellings=true", ["data", "merge_spellings"], True),
        ("data.sites.north=new.csv", ["data", "sites", "north"], "new.csv"),
        ('data.sites."old town"=new.csv', ["data", "sites", "old town"], "new.csv"),
        ('features."blood pressure".kind=date', ["features", "blood pressure", "kind"], "date"),
        ("features.age.kind=numeric", ["features", "age", "kind"], "numeric"),
        ("model.hidden=[4]", ["model", "hidden"], [4]),
        ("method.name=fedavg", ["method", "name"], "fedavg"),
        ("method.tolerance=1e-3", ["method", "tolerance"], 1e-3),
    ],
)
def test_one_key_changes(setting: str, path: list[str], value: object) -> None:
    changed = with_settings(TEXT, [setting])
    assert tomllib.loads(changed) == put(tomllib.loads(TEXT), path, value)
    assert changed.startswith("# a comment\n")


def test_the_last_setting_of_a_key_holds() -> None:
    changed = with_settings(TEXT, ["data.seed=4", "model.kind=mlp", "data.seed=5"])
    assert tomllib.loads(changed)["data"]["seed"] == 5
    assert changed.count("seed") == 1


@pytest.mark.parametrize("setting", ["rounds=3", "method.rounds", "=3", "a b.c=3", "data.seed.x=3"])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match="--set"):
        with_settings(TEXT, [setting])


def test_a_run_keeps_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path)
    words = ("--set", "method.name=fedavg", "--set", "method.rounds=2", "--set", "data.seed=7")
    run_here("train", config, *words)
    run = Path("runs", "fedminmax")
    results = results_of(run)
    assert (results["method"]["key"], results["method"]["rounds"]) == ("fedavg", 2)
    assert tomllib.loads((run / "config.toml").read_text())["data"]["seed"] == results["seed"] == 7
    assert "[method] fedminmax has no option 'roundz'" in complaint_here(
        capsys, "train", config, "--set", "method.roundz=3"
    )
