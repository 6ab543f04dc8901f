"""`fedminmax demo`: its tables are what it says of them, and its two runs end as it says."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from scripts.benefit_picture import demo_changes
from sklearn.linear_model import LogisticRegression

from fedminmax.data.adult import HOSPITALS, hospital_tables
from tests.cli.command import run_here
from tests.test_readme import DEMO


def test_nausea_is_a_sign_in_women_and_hardly_one_in_men() -> None:
    """A logistic regression of each sex finds what the patients were drawn from."""
    tables = hospital_tables()
    rows = [row for text in tables.values() for row in csv.DictReader(io.StringIO(text))]
    assert len(rows) == sum(size for size, _ in HOSPITALS.values())
    assert hospital_tables() == tables
    for sex, share, effects in (
        ("female", 0.06, (2.6, 3.5, 0.9, 0.05)),
        ("male", 0.94, (2.6, -0.3, 0.9, 0.05)),
    ):
        own = [row for row in rows if row["sex"] == sex]
        assert len(own) / len(rows) == pytest.approx(share, abs=0.01)
        features = np.array(
            [
                [row["chest_pain"] == "yes", row["nausea"] == "yes", row["ecg"], row["age"]]
                for row in own
            ],
            float,
        )
        ill = [row["infarction"] for row in own]
        found = LogisticRegression(C=1e6, max_iter=1000).fit(features, ill).coef_[0]
        assert found == pytest.approx(effects, abs=0.35)


@pytest.mark.slow
def test_the_first_run_helps_and_the_second_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run_here("demo", "--open")
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    folders = [Path("runs", "demo", name) for name in ("hospitals", "adult")]
    assert said.splitlines()[-2:] == [f"  {folder / 'run' / 'report.html'}" for folder in folders]
    assert [Path(address).name for address in opened] == ["report.html"] * 2
    verdicts = []
    for folder in folders:
        assert (folder / "run" / "report.html").exists()
        results = json.loads((folder / "run" / "results.json").read_text())
        verdicts.append(results["verdict"]["verdict"])
        assert results["proof"]
    assert verdicts == ["helped, at a price", "no clear change"]
    assert demo_changes(folders[0] / "run") == DEMO
