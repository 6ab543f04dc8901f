"""What a user of tables reads about groups that are too small to be trained for."""

import json
from pathlib import Path

import pytest

from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import results_of, rounds_of
from tests.network.small_group_tables import write_small_groups

NOTE = (
    "groups with fewer than 10 training rows: 'Quechua / age under 60' (4), "
    "'Quechua / age 60 and over' (3), 'Sami / age 60 and over' (2)"
)


def test_a_run_says_which_groups_it_was_not_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small_groups(tmp_path, groups="minimum_size = 10")
    config, out = tmp_path / "fedminmax.toml", tmp_path / "run"
    run_here("train", config, "--out", out)
    told = capsys.readouterr()
    assert f"fedminmax: note: {NOTE}" in told.err
    results = json.loads((out / "results.json").read_text())
    assert [note for note in results["notes"] if note.startswith(NOTE)]
    small = [own.get("small", False) for own in results["test"]["metrics"]["risk"]["by_group"]]
    assert small == [False, False, False, True, True, True]
    # Who is named is told to everybody, how many they are is not.
    card = (out / "model_card.md").read_text()
    untrained = "Too few training records to be trained for: Quechua / age under 60, "
    assert untrained in card
    assert NOTE.replace("'", "") not in card.replace("'", "")
    census = json.loads((out / "census.json").read_text())
    assert len(census["small_groups"]) == 3
    weights = [own["weights"] for own in rounds_of(out)]
    assert all(line[3:] == weights[0][3:] for line in weights)
    run_here("report", out, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert untrained in page
    write_small_groups(tmp_path, groups="minimum_size = 1")
    assert "small_groups" in complaint_here(capsys, "train", config, "--out", out)


def test_merged_groups_are_named_and_each_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small_groups(tmp_path, groups='minimum_size = 10\nsmall = "merge"')
    out = tmp_path / "run"
    run_here("train", tmp_path / "fedminmax.toml", "--out", out)
    said = " ".join(capsys.readouterr().out.split())
    results = results_of(out)
    merged, whole = results["merged"], results["test"]["metrics"]["risk"]["by_group"][-1]
    assert merged["groups"] == [
        "Quechua / age under 60",
        "Quechua / age 60 and over",
        "Sami / age 60 and over",
    ]
    risks = merged["test"]["metrics"]["risk"]["by_group"]
    assert sum(own["rows"] for own in risks) == merged["test"]["rows"] == whole["rows"]
    total = sum(own["rows"] * own["value"] for own in risks)
    assert total / whole["rows"] == pytest.approx(whole["value"])
    # One of them by the rows that were held out, as anybody can.
    listed = json.loads((out / "held_out.json").read_text())["rows"]
    lines = (tmp_path / "north.csv").read_text().splitlines()
    held = [lines[number] for number in listed["north"] if "Quechua" in lines[number]]
    young = [line for line in held if ",40," in f",{line},"]
    (tmp_path / "young.csv").write_text("\n".join([lines[0], *young]) + "\n")
    run_here("evaluate", out, tmp_path / "young.csv", "--json")
    alone = json.loads(capsys.readouterr().out)["test"]
    assert alone["rows"] == risks[0]["rows"] > 0
    assert alone["metrics"]["risk"]["overall"]["value"] == pytest.approx(risks[0]["value"])
    words = (
        "'merged small groups' are 3 groups, each too small to be trained for: "
        "Quechua / age under 60"
    )
    assert words in said
    assert "Sami / age 60 and over" in said.split(words)[1]
    assert "merged small groups" in (out / "model_card.md").read_text().split("Quechua")[0]
    run_here("report", out, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Each of the merged small groups" in page


def test_a_word_that_is_no_rule_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fedminmax.toml"
    write_small_groups(tmp_path)
    path.write_text(path.read_text().replace("minimum_size = 0", 'small = "drop"'))
    words = complaint_here(capsys, "train", path)
    assert "small" in words
    assert "'by_size', 'merge' or 'include'" in words


def test_a_proof_says_that_small_groups_weigh_their_share(tmp_path: Path) -> None:
    path, out = tmp_path / "fedminmax.toml", tmp_path / "run"
    write_small_groups(tmp_path, groups="minimum_size = 10")
    fast = 'name = "fedminmax-fast"\nrounds = 15\nbaseline = "none"\n'
    model = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2\n'
    start = path.read_text().split("[model]")[0]
    path.write_text(f"{start}[model]\n{model}[method]\n{fast}")
    run_here("train", path, "--out", out)
    card = " ".join((out / "model_card.md").read_text().split())
    assert "of a mixture, which is no single group's risk" in card
    results = results_of(out)
    assert len(results["small_groups"]) == 3
    assert results["gap_left"] <= 1e-4
    weights = rounds_of(out)[-1]["weights"]
    assert weights[3:] == pytest.approx([4 / 163, 3 / 163, 2 / 163], abs=1e-3)
