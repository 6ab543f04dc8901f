"""A run folder remembers its run: one configuration, one set of sites, one name at the server."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.read import Overrides
from fedminmax.findings.records import Results
from fedminmax.network.wire.plan import RUN_NAME
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import (
    NETWORK_FOLDER,
    FederationRun,
    open_federation_run,
    plan_of,
    read_federation_run,
)
from fedminmax.runs.folder import RECORD_FILE, claim_run, write_results
from tests.complaints import complaint_of
from tests.network.network_problem import SITES, write_tables
from tests.runs.run_folders import GROUPS, results


@pytest.fixture
def record(tmp_path: Path) -> FederationRun:
    return FederationRun("", write_tables(tmp_path), kit=None, sites=SITES, site_rules=SiteRules())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_second_call_finds_the_run_of_the_first(record: FederationRun, folder: Path) -> None:
    named = open_federation_run(folder, record)
    assert RUN_NAME.fullmatch(named.run) is not None
    assert replace(named, run="") == record
    assert read_federation_run(folder) == named
    assert open_federation_run(folder, record) == named
    assert (folder / "config.toml").read_text() == record.config.read_text()


def test_two_folders_have_runs_of_their_own(record: FederationRun, folder: Path) -> None:
    names = {open_federation_run(folder / str(number), record).run for number in range(3)}
    assert len(names) == 3


@pytest.mark.parametrize("stem", ["ä b", "...", "x" * 100, "_"])
def test_any_configuration_has_a_name_that_sites_take(
    stem: str, record: FederationRun, folder: Path
) -> None:
    config = record.config.rename(record.config.with_name(f"{stem}.toml"))
    assert RUN_NAME.fullmatch(open_federation_run(folder, replace(record, config=config)).run)


def test_another_configuration_is_refused(record: FederationRun, folder: Path) -> None:
    open_federation_run(folder, record)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def refused(other: FederationRun, difference: str) -> None:
        message = complaint_of(lambda: open_federation_run(folder, other))
        assert "belongs to a different configuration" in message
        assert difference in message

    refused(replace(record, sites=SITES[:2]), "sites is")
    refused(replace(record, overrides=Overrides(rounds=7)), "runs is")
    text = record.config.read_text()
    for old, new, difference in (
        ("seed = 3", "seed = 4", "seed is 3 there and 4 here"),
        ("held_out = 0.2", "held_out = 0.3", "held_out is 0.2 there and 0.3 here"),
        ("learning_rate = 0.3", "learning_rate = 0.2", "runs is"),
        ('kind = "logistic"', 'kind = "mlp"\nhidden = [2]', "model.kind is"),
    ):
        record.config.write_text(text.replace(old, new))
        refused(record, difference)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_finished_run_keeps_the_configuration_that_its_results_are_of(
    record: FederationRun, folder: Path
) -> None:
    open_federation_run(folder, record)
    content = results("FedMinMax", (0.3, 0.2), (0.1, 0.1), (20, 30), GROUPS)
    write_results(folder, Results.model_validate(content))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    record.config.write_text(record.config.read_text() + "# other words\n")
    open_federation_run(folder, replace(record, site_rules=SiteRules(minimum_sites=3)))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_is_opened_by_one_process_at_a_time(record: FederationRun, folder: Path) -> None:
    open_federation_run(folder, record)
    record.config.write_text(record.config.read_text() + "# other words\n")
    with claim_run(folder):
        assert "another process" in complaint_of(lambda: open_federation_run(folder, record))
    assert "other words" not in (folder / "config.toml").read_text()


def test_patience_may_change(record: FederationRun, folder: Path) -> None:
    first = open_federation_run(folder, record)
    patient = replace(record, site_rules=SiteRules(minimum_sites=3, round_timeout=5.0))
    second = open_federation_run(folder, patient)
    assert second.run == first.run
    assert read_federation_run(folder).site_rules == patient.site_rules
    assert plan_of(second, second.read_config()).site_rules == patient.site_rules


def test_rounds_that_were_asked_for_are_those_of_the_plan(record: FederationRun) -> None:
    longer = replace(record, run="r", overrides=Overrides(rounds=7))
    assert [run.rounds for run in plan_of(longer, longer.read_config()).runs] == [7]
    given = replace(record, run="r")
    assert [run.rounds for run in plan_of(given, given.read_config()).runs] == [3]


def test_other_folders_are_refused_in_one_line(record: FederationRun, folder: Path) -> None:
    assert "has no run over a network" in complaint_of(lambda: read_federation_run(folder))
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    assert "has other files" in complaint_of(lambda: open_federation_run(folder, record))
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "{}", '{"run": 3}'])
def test_a_damaged_record_is_a_mistake_in_one_line(
    content: str, record: FederationRun, folder: Path
) -> None:
    open_federation_run(folder, record)
    (folder / NETWORK_FOLDER / RECORD_FILE).write_text(content)
    assert "is damaged" in complaint_of(lambda: read_federation_run(folder))
