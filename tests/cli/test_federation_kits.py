"""`fedminmax federation create`: a folder for everyone, and no key for anyone else.

A privacy guarantee between sites: a site's budget, what results say, and refusals.
"""

import json
import stat
from pathlib import Path

import pytest

from fedminmax.cli.main import main
from fedminmax.config.read import read_config
from fedminmax.core.privacy.ledger import read_ledger, write_line
from fedminmax.network.site.privacy import SPENT_FILE, planned_line
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import plan_of_config
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.folder import read_results
from fedminmax.runs.privacy import LEDGER_FILE
from tests.cli.command import complaint_here, run_here
from tests.cli.kits import DESCRIBED, SETTINGS, check, create
from tests.network.masked_problem import FourSites
from tests.network.network_problem import write_tables
from tests.network.private_sites import MASKED, PROMISED, private_config
from tests.runs.network_runs import run_between_sites


def test_everyone_gets_a_folder_and_nobody_anothers_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path) == 0
    kits = tmp_path / "kits"
    said = capsys.readouterr().out
    assert "NO secure aggregation: the server sees every reply of every site separately" in said
    assert "needs at least 3 sites" in said
    defaults = [json.loads(path.read_text()) for path in kits.rglob("federation.json")]
    assert defaults == [{"secure_aggregation": False}] * 4
    assert "sees yours separately" in (kits / "sites/north/README.md").read_text()
    keys = sorted(str(path.relative_to(kits)) for path in kits.rglob("*.key"))
    assert keys == [
        "people/ann@lab.org/startup/client.key",
        "people/bob@lab.org/startup/client.key",
        "server/startup/server.key",
        "sites/north/startup/client.key",
        "sites/south/startup/client.key",
    ]
    secrets = [*kits.rglob("*.key"), *(kits / "authority").rglob("*.json")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(kits.stat().st_mode) == 0o700
    assert "connects to localhost:18444" in (kits / "sites/north/README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["federation.toml", "kits"]


def test_no_kit_allows_code_or_a_shell(tmp_path: Path) -> None:
    create(tmp_path)
    for kit in ("server", "sites/north", "sites/south"):
        rules = json.loads((tmp_path / "kits" / kit / "local/authorization.json").read_text())
        assert all(
            rights.get(what, "none") == "none"
            for rights in rules["permissions"].values()
            for what in ("byoc", "shell_commands")
        )


def test_kits_are_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path)
    assert create(tmp_path) == 2
    assert "keys are made once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"south"', '"north"', "'north' is there twice"),
        ('"south"', '"../south"', "'../south' is not a name"),
        ('"south"', '"server"', "'server' is not a name"),
        ("18444", "0", "port"),
        ('"coordinator"', '"member"', 'has no "coordinator"'),
        ('"coordinator"', '"king"', "people"),
        ("ann@lab.org", "ann", "'ann' is not of the form name@place.org"),
        ("[server]", "[srever]", "srever"),
        ("sites =", "sites", "line 2"),
    ],
)
def test_a_mistake_is_one_line(
    old: str, new: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path, DESCRIBED.replace(old, new)) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "kits").exists()


def test_a_folder_that_is_no_kit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kits/sites/north").mkdir(parents=True)
    assert check(tmp_path) == 2
    assert "is not a site's kit" in capsys.readouterr().err
    assert main(["federation", "start", "--kit", str(tmp_path)]) == 2
    assert "is not a server's kit" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", '{"client": 3}', "\xff"])
def test_a_damaged_kit_is_a_mistake_in_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    startup = tmp_path / "kits/sites/north/startup"
    startup.mkdir(parents=True)
    (startup / "fed_client.json").write_text(content, encoding="latin-1")
    assert check(tmp_path) == 2
    error = capsys.readouterr().err
    assert "fed_client.json is damaged; copy the kit again" in error
    assert error.count("\n") == 1


def test_the_agreed_configuration_is_in_every_sites_kit(tmp_path: Path) -> None:
    config = write_tables(tmp_path)
    (tmp_path / "federation.toml").write_text(DESCRIBED)
    kits = tmp_path / "kits"
    words = [str(tmp_path / "federation.toml"), "--config", str(config), "--out", str(kits)]
    assert main(["federation", "create", *words]) == 0
    for site in ("north", "south"):
        assert (kits / "sites" / site / "fedminmax.toml").read_text() == config.read_text()
    words = ["--kit", str(kits / "sites/north"), "--data", str(tmp_path / "north.csv")]
    assert main(["site", "check", *words]) == 0


def test_a_kit_without_the_configuration_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    words = ["--kit", str(tmp_path / "kits/sites/north"), "--data", "north.csv"]
    assert main(["site", "check", *words]) == 2
    error = capsys.readouterr().err
    assert "ask the coordinator for the agreed configuration" in error
    assert error.count("\n") == 1


def test_a_bad_configuration_makes_no_kits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "federation.toml").write_text(DESCRIBED)
    (tmp_path / "fedminmax.toml").write_text("[data]\n")
    words = [str(tmp_path / "federation.toml"), "--config", str(tmp_path / "fedminmax.toml")]
    assert main(["federation", "create", *words, "--out", str(tmp_path / "kits")]) == 2
    assert "fedminmax.toml" in capsys.readouterr().err
    assert not (tmp_path / "kits").exists()


Capture = pytest.CaptureFixture[str]


def test_a_site_sees_its_budget_before_and_after_a_run_and_limits_it(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    config = private_config(tmp_path)
    assert check(tmp_path, "--max-epsilon", "6", config=config) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Promised for one training row: (epsilon, delta) = (4, 0.001)" in shown
    assert "Spent on this table: epsilon 0 so far, 4 after one run" in shown
    assert "limit 6." in shown
    assert "once, without noise the number of training rows, and which of the listed" in shown
    assert "in each of 2 rounds of fedminmax-fast, with noise loss sums by group" in shown
    noted = (tmp_path / SETTINGS).read_text()
    assert json.loads(noted)["max_epsilon"] == 6.0
    # A run that began writes such a line.
    settings = SiteSettings((tmp_path / "north.csv").absolute())
    plan = plan_of_config(read_config(config), "earlier", ["north"], SiteRules())
    ledger = tmp_path / "kits/sites/north/fedminmax_kept" / SPENT_FILE
    write_line(ledger, read_ledger(ledger), planned_line(plan, settings))
    capsys.readouterr()
    assert check(tmp_path, config=config) == 2
    error = capsys.readouterr().err
    assert "have spent epsilon 4, with this one it would be 6" in error
    assert error.count("\n") == 1
    assert (tmp_path / SETTINGS).read_text() == noted
    assert check(tmp_path, "--max-epsilon", "7", config=config) == 0
    assert "Spent on this table: epsilon 4 so far, 6" in capsys.readouterr().out


def test_kits_say_over_how_many_sites_totals_are_under_the_promise(
    tmp_path: Path, capsys: Capture
) -> None:
    """With noise from every site a total needs all of four, without it three are enough."""
    four = DESCRIBED.replace('"south"', '"south", "east", "west"')
    assert create(tmp_path, four) == 0
    assert "totals over at least 3 sites" in capsys.readouterr().out
    words = ["federation", "create", tmp_path / "federation.toml", "--out", tmp_path / "promised"]
    run_here(*words, "--config", private_config(tmp_path))
    assert "totals over at least 4 sites" in capsys.readouterr().out


def test_results_card_and_report_say_what_is_promised_and_what_is_not(
    tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "run"
    run = run_between_sites(private_config(tmp_path), folder, FourSites(tmp_path))
    run.collect()
    results = read_results(folder)
    assert results is not None
    assert results.privacy is not None
    assert (results.privacy.epsilon, results.privacy.unit, results.privacy.releases) == (
        4.0,
        "row",
        3,
    )
    assert "counts of training rows are noisy: exact ones were not sent" in results.notes
    assert results.cost is not None
    assert results.cost.usual_rounds is None
    run_here("federation", "local", tmp_path / "fedminmax.toml", "--out", folder)
    run_here("report", folder, "--out", tmp_path / "report.html")
    printed = " ".join(capsys.readouterr().out.split())
    card = (folder / "model_card.md").read_text()
    for shown in (printed, card, (tmp_path / "report.html").read_text()):
        assert "(epsilon, delta) = (4, 0.001) for one training record" in shown
        assert "the number of training records over all sites" in shown
    census = json.loads((folder / "census.json").read_text())
    assert census["sites"] == ["all sites"]


@pytest.mark.parametrize(
    ("promise", "federation", "words"),
    [
        (PROMISED, "[federation]\nsecure_aggregation = false", "[privacy]: sums are not masked"),
        (
            f"{PROMISED}\nlimit = 3.0",
            MASKED,
            "limit = 3: earlier runs on these files",
        ),
        (f"{PROMISED}\ncolluding = 3", MASKED, "would lack noise"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused_before_anything_is_written(
    promise: str, federation: str, words: str, tmp_path: Path, capsys: Capture
) -> None:
    config, out = private_config(tmp_path, promise, federation), tmp_path / "out"
    assert words in complaint_here(capsys, "federation", "local", config, "--out", out)
    assert not out.exists()
    assert not (tmp_path / LEDGER_FILE).exists()


def test_a_limit_of_files_is_not_one_of_sites(tmp_path: Path, capsys: Capture) -> None:
    config = private_config(tmp_path, f"{PROMISED}\nlimit = 8.0")
    description = tmp_path / "federation.toml"
    description.write_text(DESCRIBED)
    error = complaint_here(
        capsys, "federation", "create", description, "--out", tmp_path / "kits", "--config", config
    )
    assert "between sites each has its own ('fedminmax site check --max-epsilon')" in error
    assert not (tmp_path / "kits").exists()
