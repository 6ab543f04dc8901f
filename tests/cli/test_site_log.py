"""`fedminmax site log`: every message that left a site, its totals, and what is not one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedminmax.cli.main import main
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.server.run import run_plan
from fedminmax.network.site.journal import JOURNAL_FILE, KEPT_FOLDER
from fedminmax.network.site.privacy import SPENT_FILE
from tests.network.logged_sites import LoggedSites
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan

Capture = pytest.CaptureFixture[str]
RUN = PlannedRun("fedminmax", {"learning_rate": "0.1"}, 2)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> LoggedSites:
    """The north has taken part in a masked run and in one that was not; its kit has the log."""
    folder = tmp_path_factory.mktemp("logged")
    for site in ("north", "south"):
        startup = folder / "kits/sites" / site / "startup"
        startup.mkdir(parents=True)
        (startup / "fed_client.json").write_text(json.dumps({"client": {"fqsn": site}}))
    sites = LoggedSites(folder)
    plan = masked_plan(listed_config(folder), FOUR_SITES, RUN)
    assert run_plan(plan, sites, folder / "runs").error is None
    unmasked = LoggedSites(folder)
    open_plan = replace(plan, run="open", secure_aggregation=None)
    assert run_plan(open_plan, unmasked, folder / "open").error is None
    sites.saw += unmasked.saw
    kit = folder / "kits/sites/north"
    (folder / "north-kept").rename(kit / KEPT_FOLDER)
    return sites


def log(sites: LoggedSites, *more: str) -> int:
    return main(["site", "log", "--kit", str(sites.folder / "kits/sites/north"), *more])


def test_the_table_fits_80_columns_and_ends_with_totals(
    sites: LoggedSites, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "80")
    assert log(sites) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    seen = sites.seen("north")
    for question, size, digest in seen:
        # Empty messages are all alike.
        lines = [own for own in shown.splitlines() if digest[:16] in own]
        assert [own for own in lines if question in own and f" {size:,} " in own]
    assert shown.index("left north: test") < shown.index("left north: open")
    words = " ".join(shown.split())
    assert f"{len(seen)} questions answered, 0 refused; {sum(s for _, s, _ in seen):,}" in words
    assert "answer: unmask" in shown
    assert "No privacy budget was spent" in words


def test_the_privacy_budget_is_said(sites: LoggedSites, capsys: Capture) -> None:
    """In the words of the ledger that a site keeps of its promises."""
    line = {"data": "d", "unit": "row", "epsilon": 2.0, "delta": 1e-5}
    more = {"run": "open", "releases": 4, "noise_multiplier": 3.0, "day": "2026-11-17"}
    ledger = sites.folder / "kits/sites/north" / KEPT_FOLDER / SPENT_FILE
    ledger.write_text(json.dumps(line | more) + "\n")
    capsys.readouterr()
    assert log(sites) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Privacy budget spent: run open: epsilon 2, delta 1e-05, unit row." in words
    assert log(sites, "--json") == 0
    budget = json.loads(capsys.readouterr().out.splitlines()[-1])["totals"]["budget"]
    assert budget == [{"run": "open", "unit": "row", "epsilon": 2.0, "delta": 1e-5}]
    ledger.unlink()


def test_lines_for_machines_add_up(sites: LoggedSites, capsys: Capture) -> None:
    capsys.readouterr()
    assert log(sites, "--json", "--run", "test") == 0
    *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
    seen = sites.seen("north")[: len(lines)]
    told = [(_called(own), own["bytes"], own["digest"]) for own in lines]
    assert told == seen
    totals = last["totals"]
    assert totals["answered"] == len(lines)
    assert totals["plain"] == 0
    assert totals["masked"] + totals["without_numbers"] == totals["bytes"]
    assert totals["masked"] == sum(own["bytes"] for own in lines if own.get("masked"))
    assert log(sites, "--json", "--run", "open") == 0
    totals = json.loads(capsys.readouterr().out.splitlines()[-1])["totals"]
    assert (totals["masked"], totals["failed"]) == (0, 0)
    assert totals["plain"] > 0


def _called(line: dict[str, Any]) -> str:
    return str(line.get("call", line["question"]["endpoint"]))


def test_mistakes_are_one_line(sites: LoggedSites, capsys: Capture, tmp_path: Path) -> None:
    capsys.readouterr()
    assert log(sites, "--run", "neither") == 2
    assert "has no run 'neither'; its runs: test, open" in capsys.readouterr().err
    assert main(["site", "log", "--kit", str(tmp_path)]) == 2
    assert "is not a site's kit" in capsys.readouterr().err
    south = sites.folder / "kits/sites/south"
    assert main(["site", "log", "--kit", str(south)]) == 0
    assert capsys.readouterr().out == "Nothing has left south yet.\n"
    (south / KEPT_FOLDER).mkdir()
    (south / KEPT_FOLDER / JOURNAL_FILE).write_text("?\n")
    assert main(["site", "log", "--kit", str(south)]) == 2
    error = capsys.readouterr().err
    assert "journal.jsonl is damaged" in error
    assert error.count("\n") == 1
