"""`fedminmax advise`: before any training, for terminals, programs and readers."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import write_config, write_hospitals


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    return write_config(tmp_path)


def test_advice_fits_a_terminal_of_80_columns(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before = sorted(config.parent.iterdir())
    run_here("advise", config)
    said = capsys.readouterr().out
    assert "Does protecting the worst site protect the worst group?" in said
    assert "Female" in said
    assert "What would help" in said
    assert max(map(len, said.splitlines())) <= 80
    assert sorted(config.parent.iterdir()) == before


def test_advice_for_programs_and_as_a_page(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = config.parent / "advice.html"
    run_here("advise", config, "--json", "--out", page)
    advice = json.loads(capsys.readouterr().out)
    assert advice["equivalent"] is False
    assert [group["name"] for group in advice["groups"]] == ["Female", "Male"]
    # Reading the census of a run tells the same of its groups.
    census = {
        "format": 1,
        "sites": advice["sites"],
        "groups": ["Female", "Male"],
        "train": [
            [round(share * rows) for share in mix]
            for mix, rows in zip(advice["mixes"], advice["site_rows"], strict=True)
        ],
        "test": [[group["test_rows"] for group in advice["groups"]], [0, 0], [0, 0]],
    }
    path = config.parent / "census.json"
    path.write_text(json.dumps(census))
    picture = config.parent / "advice.svg"
    run_here("advise", path, "--json", "--out", picture)
    again = json.loads(capsys.readouterr().out)
    assert again["groups"] == advice["groups"]
    assert again["costs"] == []
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    text = page.read_text()
    assert advice["answer"].replace("'", "&#39;") in text
    assert "<svg" in text
    assert "Written by fedminmax advise" in text


def test_advice_is_refused_in_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = config.parent / "advice.html"
    page.write_text("mine")
    assert "already exists" in complaint_here(capsys, "advise", config, "--out", page)
    assert page.read_text() == "mine"
    assert ".html, .svg or .png" in complaint_here(capsys, "advise", config, "--out", "a.pdf")
    broken = config.parent / "census.json"
    broken.write_text('{"format": 1, "sites": ["a"], "groups": ["g"], "train": [], "test": []}')
    assert "needs one count for each site" in complaint_here(capsys, "advise", broken)
    broken.write_text("[1")
    assert "is not JSON" in complaint_here(capsys, "advise", broken)
    assert "does not exist" in complaint_here(capsys, "advise", config.parent / "no.json")
