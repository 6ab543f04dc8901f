"""A frontier on tables: files, the chosen model as a run folder, and what is refused."""

import json
from pathlib import Path

import pytest

import fedminmax
from fedminmax.findings.frontier import (
    FrontierFile,
    frontier_sentences,
    frontier_table,
    group_tables,
)
from fedminmax.runs.folder import finished_results
from fedminmax.runs.frontier import choose_point, read_frontier
from tests.cli.command import complaint_here, run_here
from tests.cli.command import fedminmax as command
from tests.cli.hospitals import rounds_of, write_config, write_hospitals
from tests.complaints import complaint_of
from tests.network.masked_problem import FourSites, listed_config
from tests.runs.network_runs import run_between_sites

MODEL = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2'
METHOD = 'name = "fedminmax-fast"\nkeep_share = 0.3'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frontier")
    write_hospitals(folder)
    run_here("frontier", write_config(folder, model=MODEL, method=METHOD), "--out", folder / "run")
    return folder


@pytest.fixture
def found(folder: Path) -> FrontierFile:
    return read_frontier(folder / "run")


def test_the_folder_is_that_of_the_recommended_model(folder: Path, found: FrontierFile) -> None:
    run, own = folder / "run", found.points[found.recommended - 1]
    assert 8 <= len(found.points) <= 12
    assert own.keep_share == 0.3
    assert own.results == finished_results(run)
    plain = found.points[0].results
    assert plain == finished_results(run / "baseline")
    assert (plain.change, plain.method.key) == (None, "fedavg-fast")
    assert own.results.change is not None
    assert own.results.change.baseline.key == "fedavg-fast"
    assert found.rounds == rounds_of(run)[-1]["round"]
    assert (run / "frontier.svg").is_file()


def test_points_are_between_their_bounds(found: FrontierFile) -> None:
    means = [point.mean for point in found.points]
    worst = [point.worst for point in found.points]
    assert means == sorted(means)
    assert worst == sorted(worst, reverse=True)
    for point in found.points:
        mixed = point.keep_share * point.mean + (1.0 - point.keep_share) * point.worst
        assert point.proof.lower <= mixed <= point.proof.upper
        assert point.gap < 1e-3
        assert point.worst == pytest.approx(max(point.risks))


def test_tables_have_every_model_and_every_group(found: FrontierFile) -> None:
    models, (risks, errors) = frontier_table(found), group_tables(found)
    assert len(models.lines) == len(found.points)
    assert all(len(line) == len(models.headers) for line in models.lines)
    groups = found.points[0].results.groups
    for table in (risks, errors):
        assert [line[0] for line in table.lines] == [*groups, "all records"]
        assert all(len(line) == len(found.points) + 1 for line in table.lines)
    # Misclassified of 1,000, with the interval of a change that has the other sign of accuracy's.
    last = found.points[-1].results
    assert last.change is not None
    accuracy, changed = last.test.metrics["accuracy"], last.change.metrics["accuracy"]
    shown = errors.lines[-1][-1].split(" ")[0]
    assert accuracy.overall.value is not None
    assert int(shown) == round(1000 * (1 - accuracy.overall.value))
    assert changed.overall.high is not None
    assert (
        f"({-1000 * changed.overall.high:.0f}".replace("-", "\N{MINUS SIGN}")
        in (errors.lines[-1][-1])
    )


def test_what_a_few_records_have_is_not_passed_on(found: FrontierFile) -> None:
    as_read = found.model_dump(mode="json")
    group = as_read["points"][0]["results"]["groups"][0]
    for metric in as_read["points"][0]["results"]["test"]["metrics"].values():
        metric["by_group"][0]["rows"] = 9
    tables = group_tables(FrontierFile.model_validate(as_read))
    assert len(tables) == 2
    assert not any(line[0] == group for table in tables for line in table.lines)


def test_every_model_but_the_plain_one_has_a_verdict(found: FrontierFile) -> None:
    """The test records of 210 patients show no clear change with any of them."""
    verdicts = [point.results.verdict for point in found.points]
    assert verdicts[0] is None
    assert {own.verdict for own in verdicts[1:] if own} == {"no clear change"}
    *others, last = range(2, len(found.points) + 1)
    listed = f"({', '.join(map(str, others))} and {last})"
    assert f"against model 1: no clear change {listed}." in " ".join(frontier_sentences(found))


def test_a_chosen_model_has_a_run_folder_of_its_own(folder: Path, found: FrontierFile) -> None:
    done = command("frontier", "run", "--choose", "2", "--json", cwd=folder)
    content = json.loads(done.stdout)
    assert content["chosen"] == "run/point-2"
    assert len(content["frontier"]["points"]) == len(found.points)
    chosen = folder / content["chosen"]
    assert finished_results(chosen) == found.points[1].results
    assert finished_results(chosen).method.options["keep_share"] == found.points[1].keep_share
    assert finished_results(chosen / "baseline") == found.points[0].results
    assert "keep_share" in (chosen / "model_card.md").read_text()
    later = folder / "later.csv"
    probabilities = fedminmax.load_model(chosen).predict_proba(later)
    others = fedminmax.load_model(folder / "run").predict_proba(later)
    assert abs(probabilities - others).max() > 1e-4
    run_here("report", chosen, "--out", folder / "chosen.html")
    assert "exists already" in complaint_of(lambda: choose_point(folder / "run", 2))
    assert "choose from 2" in complaint_of(lambda: choose_point(folder / "run", 1))
    assert "choose from 2" in complaint_of(lambda: choose_point(folder / "run", 99))


def test_python_finds_the_same_and_goes_on_where_it_stopped(
    folder: Path, found: FrontierFile
) -> None:
    config, again = folder / "fedminmax.toml", folder / "again"
    early = complaint_of(lambda: fedminmax.frontier(config, folder=again, rounds=5))
    assert "give more rounds" in early
    same = fedminmax.frontier(config, folder=again)
    assert _without_results(same) == _without_results(found)
    assert [own.results.test for own in same.points] == [own.results.test for own in found.points]


def _without_results(frontier: FrontierFile) -> list[object]:
    return [point.model_dump(exclude={"results"}) for point in frontier.points]


def test_a_run_without_a_frontier_shows_what_its_rounds_prove(folder: Path) -> None:
    run = folder / "alone"
    run_here("train", folder / "fedminmax.toml", "--out", run)
    own, plain = finished_results(run).boundary, finished_results(run / "baseline").boundary
    assert own is not None
    assert plain is not None
    assert plain.worst >= own.worst
    for mean, worst in ((own.mean, own.worst), (plain.mean, plain.worst)):
        assert all(keep * mean + (1.0 - keep) * worst >= low - 1e-9 for keep, low in own.lines)
    rounds = [record["risks"] for record in rounds_of(run / "baseline")]
    penalty = plain.worst - min((max(risks), risks) for risks in rounds)[0]
    assert 0 <= penalty < 0.1
    run_here("report", run, "--out", folder / "alone.html")
    assert 'id="run-boundary-title"' in (folder / "alone.html").read_text()
    run_here("report", folder / "run", "--out", folder / "found.html")
    page = (folder / "found.html").read_text()
    assert 'id="run-frontier-title"' in page
    assert 'id="run-boundary-title"' not in page


@pytest.mark.parametrize(
    ("model", "method", "complaint"),
    [
        (MODEL, 'name = "fedminmax"', 'set name = "fedminmax-fast"'),
        (MODEL, 'name = "fedavg-fast"', 'set name = "fedminmax-fast"'),
        ('kind = "mlp"\nhidden = [4]', METHOD, "frontier: "),
        ('kind = "logistic"\nloss = "brier"', METHOD, "frontier: the Brier loss"),
        (MODEL, METHOD + "\nmin_weight = 0.1", "drop min_weight"),
    ],
)
def test_what_has_no_frontier_is_refused_before_the_first_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, method: str, complaint: str
) -> None:
    write_hospitals(tmp_path)
    config = write_config(tmp_path, model=model, method=method)
    said = complaint_here(capsys, "frontier", config, "--out", tmp_path / "run")
    assert complaint in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", ["1", "99"])
def test_a_choice_of_no_point_is_refused_before_the_first_round(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    config, run = folder / "fedminmax.toml", tmp_path / "run"
    said = complaint_here(capsys, "frontier", config, "--out", run, "--choose", number)
    assert f"--choose {number}: choose from 2 to 10" in said
    assert not run.exists()


def test_a_frontier_of_the_excess_speaks_of_the_excess(folder: Path, tmp_path: Path) -> None:
    config = folder / "fedminmax.toml"
    setting = ("--set", 'method.objective="excess"')
    run_here("frontier", config, *setting, "--out", tmp_path / "run")
    found = read_frontier(tmp_path / "run")
    assert "highest excess of a group falls from" in frontier_sentences(found)[0]
    assert "highest excess of a group" in frontier_table(found).headers


def test_a_folder_without_a_frontier_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has no frontier.json" in complaint_here(capsys, "frontier", tmp_path)


def frontier_config(folder: Path, *, masked: bool = False) -> Path:
    """A configuration for four sites, whose method finds a frontier."""
    listed_config(folder)
    path = folder / "fedminmax.toml"
    words = path.read_text().replace("learning_rate = 0.3", "frontier = true")
    words = words.replace('"fedminmax"', '"fedminmax-fast"').replace("rounds = 3", "rounds = 60")
    words = words.replace('kind = "logistic"', MODEL)
    path.write_text(words + f"[federation]\nsecure_aggregation = {str(masked).lower()}\n")
    return path


def between_sites(config: Path, folder: Path, *, masked: bool) -> FrontierFile:
    run = run_between_sites(config, folder, FourSites(config.parent) if masked else None)
    run.collect()
    return read_frontier(folder)


@pytest.mark.parametrize("masked", [False, True])
def test_sites_find_the_same_frontier(tmp_path: Path, *, masked: bool) -> None:
    config = frontier_config(tmp_path, masked=masked)
    apart = between_sites(config, tmp_path / "apart", masked=masked)
    run_here("frontier", config, "--out", tmp_path / "together")
    together = read_frontier(tmp_path / "together")
    assert apart.rounds == together.rounds
    close = 1e-4 if masked else 1e-6
    for one, other in zip(apart.points, together.points, strict=True):
        for name in ("keep_share", "mean", "worst"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=close)
        assert one.proof.lower <= one.proof.upper
        assert one.proof.lower == pytest.approx(other.proof.lower, rel=3e-4)
        assert one.results.risk.overall.value == pytest.approx(
            other.results.risk.overall.value, rel=close
        )
    assert (apart.points[0].results.secure_aggregation is not None) == masked
    # Here the plain model itself is within the tolerance, and is the run's answer.
    assert apart.recommended == together.recommended == 1
    assert finished_results(tmp_path / "apart").method.key == "fedminmax-fast"
    chosen = choose_point(tmp_path / "apart", 3)
    assert finished_results(chosen) == apart.points[2].results
