"""A run between sites leaves what `fedminmax train` leaves: the same files, the same figures.

The run folder of a run with masked sums: totals alone, and words that say so.

A run over a network proves what the same run in one process proves, and stops where it does.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedminmax
from fedminmax.config.read import Overrides
from fedminmax.core.errors import InputError
from fedminmax.findings.records import Results
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs import assemble
from fedminmax.runs.federation import NETWORK_FOLDER, FederationRun, open_federation_run, plan_of
from fedminmax.runs.folder import finished_results, read_results, write_results
from fedminmax.runs.network import collect_network_run
from tests.cli.command import run_here
from tests.cli.hospitals import (
    HOSPITALS,
    draw_patients,
    results_of,
    rounds_of,
    write_config,
    write_hospitals,
)
from tests.complaints import complaint_of
from tests.network.masked_problem import LISTED, FourSites, listed_config
from tests.network.network_problem import SITES, write_tables
from tests.runs.network_runs import run_between_sites, run_both_ways
from tests.training.disturbed_simulation import SilentTransport

# What a run between sites adds, and what it says in words of its own.
OWN = {"sites", "notes", "finished", "cost"}
ROUNDING = 1e-6
LAYOUTS: dict[str, dict[str, Any]] = {
    "binary": {"target": "ill"},
    "regression": {"target": "cost"},
    "three classes, test files": {
        "target": "stage",
        "data": 'test = { north = "later.csv", clinic = "clinic.csv" }',
        "method": 'name = "fedminmax-local"\nrounds = 4',
    },
    "mixture of networks": {
        "target": "ill",
        "model": 'kind = "mlp"\nhidden = [4]\ninputs = "columns"',
        "method": 'name = "minimax-fair"\nrounds = 12\nfit_rounds = 4',
    },
}


@pytest.fixture(scope="module", params=LAYOUTS)
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("hospitals")
    write_hospitals(place)
    draw_patients(40, seed=11).write_csv(place / "clinic.csv")
    return run_both_ways(write_config(place, **LAYOUTS[request.param]))


def pairs_of_runs(folders: tuple[Path, Path]) -> list[tuple[Path, Path]]:
    return [folders, (folders[0] / "baseline", folders[1] / "baseline")]


def assert_close(found: object, expected: object, size: float) -> None:
    """Same shape, same words, and numbers that differ by rounding of figures of this size."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(found[name], value, size)
    elif isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, size)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING * size)
    else:
        assert found == expected


def scale_of(folder: Path) -> float:
    """The size of the figures: that of the largest risk."""
    risks = [float(risk) for line in rounds_of(folder) for risk in line["risks"]]
    return max(1.0, *risks)


def test_results_are_those_of_a_run_in_one_process(folders: tuple[Path, Path]) -> None:
    for apart, together in pairs_of_runs(folders):
        found, expected = results_of(apart), results_of(together)
        assert found.keys() == expected.keys() | {"sites"}
        for name in expected.keys() - OWN:
            assert_close(found[name], expected[name], scale_of(together))


def test_messages_have_the_bytes_that_were_expected(folders: tuple[Path, Path]) -> None:
    for apart, together in pairs_of_runs(folders):
        found, expected = results_of(apart)["cost"], results_of(together)["cost"]
        assert found == expected | {
            "counted_down": expected["bytes_down"],
            "counted_up": expected["bytes_up"],
            "total_down": sum(line["sites"]["bytes_out"] for line in rounds_of(apart)),
            "total_up": sum(line["sites"]["bytes_in"] for line in rounds_of(apart)),
        }


def test_rounds_and_census_are_those_of_a_run_in_one_process(folders: tuple[Path, Path]) -> None:
    for apart, together in pairs_of_runs(folders):
        lines = [line | {"sites": None} for line in rounds_of(apart)]
        expected = [line | {"sites": None} for line in rounds_of(together)]
        assert_close(lines, expected, scale_of(together))
    censuses = [json.loads((folder / "census.json").read_text()) for folder in folders]
    assert censuses[0] == censuses[1]
    assert censuses[0]["sites"] == list(HOSPITALS)


def test_the_model_is_that_of_a_run_in_one_process(folders: tuple[Path, Path]) -> None:
    later = pl.read_csv(folders[0].parent / "later.csv")
    for pair in pairs_of_runs(folders):
        found, expected = (fedminmax.load_model(folder) for folder in pair)
        assert (found.iterate, found.members) == (expected.iterate, expected.members)
        if found.classes:
            np.testing.assert_allclose(
                found.predict_proba(later), expected.predict_proba(later), atol=ROUNDING
            )
        else:
            np.testing.assert_allclose(
                found.predict(later), expected.predict(later), rtol=10 * ROUNDING
            )


def test_the_same_files_are_left(folders: tuple[Path, Path]) -> None:
    for apart, together in pairs_of_runs(folders):
        names = {path.name for path in together.iterdir() if not path.name.startswith(".")}
        # Which rows were held out is told to nobody: the list stays at its site.
        names.discard("held_out.json")
        assert not list(apart.rglob("held_out*"))
        assert names <= {path.name for path in apart.iterdir()} | {"config.json"}
        assert all(line["sites"]["took_part"] == list(SITES) for line in rounds_of(apart))


def test_results_say_which_sites_took_part(folders: tuple[Path, Path]) -> None:
    for apart, _ in pairs_of_runs(folders):
        results, rounds = results_of(apart), len(rounds_of(apart))
        assert results["sites"] == [
            {"site": site, "rounds": rounds, "refused": {}} for site in SITES
        ]
        assert results["notes"] == [
            "no secure aggregation: the server sees every reply of every site separately"
        ]


def test_other_commands_take_the_folder(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apart, together = folders
    later = apart.parent / "later.csv"
    run_here("evaluate", apart, "--json")
    assert json.loads(capsys.readouterr().out)["test"] == results_of(apart)["test"]
    measured = []
    for folder in folders:
        run_here("evaluate", folder, later, "--json")
        measured.append(json.loads(capsys.readouterr().out.splitlines()[-1])["test"])
    assert_close(measured[0], measured[1], scale_of(together))
    run_here("predict", apart, later, "--out", tmp_path / "answers.csv")
    assert len(pl.read_csv(tmp_path / "answers.csv")) == len(pl.read_csv(later))
    run_here("evaluate", apart / "baseline", later)
    run_here("report", apart, "--out", tmp_path / "report.html")
    assert "Female" in (tmp_path / "report.html").read_text()
    assert "Female" in (apart / "model_card.md").read_text()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace('"none"', '"fedavg"'))
    return path


def test_without_any_held_out_row_there_are_no_metrics(config: Path, tmp_path: Path) -> None:
    run = run_between_sites(config, tmp_path / "run", SilentTransport(tmp_path, "measure", SITES))
    run.collect()
    results = results_of(run.folder)
    assert results["test"] == {"rows": 0, "min_rows": 50, "metrics": {}}
    assert "change" not in results


def test_a_folder_is_done_when_both_runs_are(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that ends in between collects again, and nothing is missing for good."""
    run = run_between_sites(config, tmp_path / "run")

    def end_at_the_last(folder: Path, content: Results) -> None:
        if folder == run.folder:
            raise KeyboardInterrupt
        write_results(folder, content)

    with monkeypatch.context() as ending:
        ending.setattr(assemble, "write_results", end_at_the_last)
        with pytest.raises(KeyboardInterrupt):
            run.collect()
    assert read_results(run.folder) is None
    assert read_results(run.folder / "baseline") is not None
    run.collect()
    assert read_results(run.folder) is not None


@pytest.mark.parametrize(
    "name", ["outcome.json", "measured.safetensors", "0-fedminmax/members.safetensors"]
)
def test_a_damaged_file_of_the_server_is_named(name: str, config: Path, tmp_path: Path) -> None:
    run = run_between_sites(config, tmp_path / "run")
    (run.fetched / name).write_bytes(b"{")
    message = complaint_of(run.collect)
    assert message.startswith(str(run.fetched / name))
    assert "damaged; resume the run" in message
    assert read_results(run.folder) is None


def test_nothing_to_collect_is_a_mistake_in_one_line(config: Path, tmp_path: Path) -> None:
    run = run_between_sites(config, tmp_path / "run")
    (run.fetched / "agreement.json").unlink()
    assert "the sites never agreed" in complaint_of(run.collect)


def test_a_masked_run_shows_totals_and_says_so(tmp_path: Path) -> None:
    listed_config(tmp_path)
    config = tmp_path / "fedminmax.toml"
    config.write_text(config.read_text() + "[federation]\nsecure_aggregation = true\n")
    folder = tmp_path / "run"
    record = FederationRun(
        "", config, kit=None, sites=SITES, site_rules=SiteRules(round_timeout=0.0)
    )
    record = open_federation_run(folder, record)
    content = record.read_config()
    plan, fetched = plan_of(record, content), folder / NETWORK_FOLDER / "results"
    assert run_plan(plan, FourSites(tmp_path), fetched).error is None
    collect_network_run(fetched, plan, content, folder)
    census = json.loads((folder / "census.json").read_text())
    assert census["sites"] == [ALL_SITES]
    assert len(census["train"]) == 1
    results = json.loads((folder / "results.json").read_text())
    assert results["secure_aggregation"] == 3
    assert [own["site"] for own in results["sites"]] == list(SITES)
    assert "reach" not in results
    # Keys and shares of masks travel beside the model: no size that was computed without them.
    cost = results["cost"]
    assert cost["bytes_down"] == cost["counted_down"] > 0
    assert cost["bytes_up"] == cost["counted_up"] > 0
    words = "the server learns only totals over at least 3 sites"
    assert any(words in note for note in results["notes"])
    assert words in (folder / "model_card.md").read_text()
    run_here("report", folder, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert words in page


@pytest.mark.parametrize("masked", [False, True])
def test_the_verdict_is_that_of_a_run_in_one_process(masked: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The dose works the other way round for women: they gain, and men do worse."""
    for seed, name in enumerate((*SITES, "east")):
        draw_patients(1500, seed).write_csv(tmp_path / f"{name}.csv")
    model = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-3'
    config = write_config(
        tmp_path, data="held_out = 0.5", model=model, method='name = "fedminmax-fast"'
    )
    masks = f"[federation]\nsecure_aggregation = {str(masked).lower()}\n"
    config.write_text(config.read_text().replace("[groups]", LISTED) + masks)
    run_between_sites(config, tmp_path / "apart", FourSites(tmp_path)).collect()
    run_here("train", config, "--out", tmp_path / "together")
    found, expected = (results_of(tmp_path / name) for name in ("apart", "together"))
    assert ("secure_aggregation" in found) is masked
    # Risk, misclassified, missed and false alarms, of two groups and of all records.
    assert expected["change"]["comparisons"] == 15
    assert_close(found["change"], expected["change"], 1.0)
    assert_close(found["verdict"], expected["verdict"], 1.0)
    assert expected["verdict"]["verdict"] == "helped, at a price"
    kinds = {harm["kind"] for harm in expected["verdict"]["harms"] if harm["group"] == "Male"}
    assert "misclassified" in kinds
    assert kinds & {"missed", "false alarms"}


@pytest.mark.parametrize(
    ("change", "sites", "reason"),
    [
        (('name = "fedminmax"', 'name = "afl"'), SITES, "'afl' needs each site's own loss"),
        (("", ""), SITES[:2], "2 sites take part"),
        (('values = { sex = ["Female", "Male"] }', ""), SITES, "values of 'sex' are not listed"),
    ],
)
def test_what_cannot_be_masked_is_refused_before_anything_starts(
    change: tuple[str, str], sites: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    listed_config(tmp_path)
    config = tmp_path / "fedminmax.toml"
    config.write_text(config.read_text().replace(*change) if change[0] else config.read_text())
    record = FederationRun(
        "",
        config,
        kit=None,
        sites=sites,
        site_rules=SiteRules(),
        overrides=Overrides(secure_aggregation=True),
    )
    with pytest.raises(InputError, match=f"secure_aggregation: .*{reason}"):
        open_federation_run(tmp_path / "run", record)
    assert not (tmp_path / "run").exists()


def fast_config(folder: Path) -> Path:
    path = write_tables(folder)
    words = path.read_text().replace("learning_rate = 0.3", "").replace("rounds = 3", "rounds = 40")
    words = words.replace('"fedminmax"', '"fedminmax-fast"')
    model = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2'
    path.write_text(words.replace('kind = "logistic"', model))
    return path


def test_the_same_bounds_after_as_many_rounds(tmp_path: Path) -> None:
    apart, together = map(finished_results, run_both_ways(fast_config(tmp_path)))
    assert apart.proof is not None
    assert together.proof is not None
    assert apart.method.rounds == together.method.rounds < 40
    assert apart.proof.lower == pytest.approx(together.proof.lower, rel=1e-9)
    assert apart.proof.upper == pytest.approx(together.proof.upper, rel=1e-9)
    assert apart.convergence is not None
    assert apart.convergence.converged


def test_the_command_line_says_when_to_stop(tmp_path: Path) -> None:
    record = FederationRun(
        "",
        fast_config(tmp_path),
        kit=None,
        sites=SITES,
        site_rules=SiteRules(),
        overrides=Overrides(optimality_gap=0.5),
    )
    assert record.read_config().method.options["optimality_gap"] == "0.5"
