"""What a site lets a server ask: an answer per round, in order, with company, all on record."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Order, RoundKey
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.network.flare.federation_file import ROSTER_FILE, read_roster
from fedminmax.network.flare.kits import provision, write_site_settings
from fedminmax.network.site.journal import JOURNAL_FILE, read_journal
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    models_to_bytes,
    order_to_bytes,
    sums_from_bytes,
    vector_to_bytes,
)
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from fedminmax.network.wire.sections import summary_from_bytes
from tests.network.network_problem import AT_ONCE, SITES, plan_of, write_tables

FEATURES, PARAMETERS = 4, 10
OPEN_RATE = PlannedRun("fedminmax", {"learning_rate": "safe"}, 3)
SET_RATE = PlannedRun("fedminmax", {"learning_rate": "0.1"}, 3)


class AskedSite:
    """The north, asked by a server that need not be honest."""

    def __init__(self, folder: Path, plan: NetworkPlan, settings: SiteSettings) -> None:
        self.site = Site("north", settings, folder / "kept", SITES)
        self.plan = plan

    def begin(self) -> None:
        """Prepare and encode, as every job does."""
        summary = self.site.prepare(plan_to_bytes(self.plan))
        schema = self.plan.schema
        encoding = agree_on_encoding(schema, summary_from_bytes(summary, schema, "north"))
        self.site.encode(encoding_as_json(encoding).encode())

    def ask(self, number: int, model: float = 0.0, *, phase: int = 0, seed: int = 3) -> bytes:
        """An order for round ``number`` with a model of this size."""
        parameters = model * torch.arange(PARAMETERS, dtype=torch.float64)
        order = Order(RoundKey(seed, number), parameters, torch.ones(2).double(), phase)
        return self.site.answer(0, order_to_bytes(order))

    def curvature(self, direction: float = 1.0) -> bytes:
        along = torch.full((2 * (FEATURES + 1),), direction, dtype=torch.float64)
        return self.site.curvature(vector_to_bytes(along))

    def measure(self, models: int) -> bytes:
        return self.site.measure(models_to_bytes([torch.zeros(models, PARAMETERS).double()]))


def job(folder: Path, run: PlannedRun = SET_RATE, name: str = "test") -> NetworkPlan:
    return replace(plan_of(read_config(write_tables(folder)), [run]), run=name)


def asked_site(
    folder: Path, run: PlannedRun = SET_RATE, *, name: str = "test", max_runs: int = 20
) -> AskedSite:
    """A site in a new job, which remembers its earlier ones."""
    settings = SiteSettings(folder / "north.csv", max_runs=max_runs)
    asked = AskedSite(folder, job(folder, run, name), settings)
    asked.begin()
    return asked


def steps_told(message: bytes) -> tuple[float, ...]:
    """What an answer tells of the rows; the time that it took may differ."""
    like = torch.zeros(PARAMETERS, dtype=torch.float64)
    sums, _ = sums_from_bytes(message, like, groups=2, limit=2**20, sender="north")
    return (*sums.step.tolist(), *sums.group_loss.tolist())


def test_513_questions_about_round_1_get_three_answers_over_all_jobs(tmp_path: Path) -> None:
    answers, refusals = set(), 0
    asked = asked_site(tmp_path)
    for attempt in range(513):
        if attempt % 100 == 99:
            asked = asked_site(tmp_path)
        try:
            answers.add(steps_told(asked.ask(1, model=attempt / 100)))
        except RefusedError:
            refusals += 1
    assert (len(answers), refusals) == (3, 510)
    with pytest.raises(RefusedError, match="answered 3 different questions about round 1"):
        asked.ask(1, model=9.0)


def test_the_same_question_gets_the_same_answer_again(tmp_path: Path) -> None:
    first = steps_told(asked_site(tmp_path).ask(1, 0.5))
    for _ in range(5):
        job_again = asked_site(tmp_path)
        assert steps_told(job_again.ask(1, 0.5)) == first
        assert steps_told(job_again.ask(1, 0.5)) == first


def test_an_earlier_round_is_refused(tmp_path: Path) -> None:
    asked = asked_site(tmp_path)
    asked.ask(2)
    with pytest.raises(RefusedError, match=r"round 1, question 1, of run 1 after round 2"):
        asked.ask(1)
    asked.ask(3)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"number": 0}, "round 0 of 3"),
        ({"number": 4}, "round 4 of 3"),
        ({"number": 1, "phase": 1}, "too often in a round"),
        ({"number": 1, "seed": 4}, "another seed"),
    ],
)
def test_orders_of_no_honest_server_are_refused(
    order: dict[str, int], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match=reason):
        asked_site(tmp_path).ask(**order)


def test_methods_of_two_questions_get_two(tmp_path: Path) -> None:
    asked = asked_site(tmp_path, PlannedRun("group-drfa", {"batch_size": "10"}, 3))
    # Its first order has a weight per group, and the step of the snapshot.
    weights = torch.ones(3, dtype=torch.float64)
    for phase in (0, 1):
        order = Order(RoundKey(3, 1), torch.zeros(PARAMETERS).double(), weights, phase)
        asked.site.answer(0, order_to_bytes(order))
    with pytest.raises(RefusedError, match="too often"):
        asked.ask(1, phase=2)


def test_curvature_is_told_thirty_times_and_only_while_the_rate_is_open(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="learning rate is set"):
        asked_site(tmp_path).curvature()
    asked = asked_site(tmp_path, OPEN_RATE)
    for place in range(30):
        asked.curvature(1.0 + place)
    with pytest.raises(RefusedError, match="more than 30 times"):
        asked.curvature()
    asked.site.take_rate(b"0.5")
    with pytest.raises(RefusedError, match="learning rate is set"):
        asked.curvature()
    with pytest.raises(RefusedError, match="it is set"):
        asked.site.take_rate(b"0.25")


def test_a_run_of_one_model_is_measured_with_one(tmp_path: Path) -> None:
    asked = asked_site(tmp_path)
    with pytest.raises(RefusedError, match="200 models of fedminmax, which has 1"):
        asked.measure(200)
    asked.measure(1)


def test_a_second_encoding_is_refused(tmp_path: Path) -> None:
    asked = asked_site(tmp_path)
    with pytest.raises(RefusedError, match="second encoding"):
        asked.begin()


def test_runs_on_the_same_table_are_limited(tmp_path: Path) -> None:
    for name in ("one", "two"):
        asked_site(tmp_path, name=name, max_runs=2).ask(1)
    with pytest.raises(RefusedError, match="2 runs on the same table"):
        asked_site(tmp_path, name="three", max_runs=2)
    asked_site(tmp_path, name="one", max_runs=2).ask(2)


def test_every_answer_is_in_the_sites_own_record(tmp_path: Path) -> None:
    asked = asked_site(tmp_path)
    asked.ask(1)
    asked.ask(2)
    asked.measure(1)
    lines = (tmp_path / "kept" / JOURNAL_FILE).read_text().splitlines()
    told = [(entry.question.endpoint, entry.round) for entry in read_journal(tmp_path / "kept")]
    assert told == [("prepare", 0), ("encode", 0), ("answer", 1), ("answer", 2), ("measure", 0)]
    assert all(entry["run"] == "test" and entry["time"] for entry in map(json.loads, lines))


def test_a_record_that_a_crash_cut_off_goes_on_and_a_damaged_one_refuses(tmp_path: Path) -> None:
    asked_site(tmp_path).ask(1)
    ledger = tmp_path / "kept" / JOURNAL_FILE
    with ledger.open("a") as file:
        file.write('{"time": "20')
    asked_site(tmp_path).ask(2)
    assert all(json.loads(line) for line in ledger.read_text().splitlines())
    ledger.write_text("no line of ours\n")
    with pytest.raises(RefusedError, match="damaged"):
        asked_site(tmp_path)


@pytest.mark.parametrize(("sites", "minimum"), [(("north",), 1), (SITES, 1)])
def test_a_plan_that_may_go_on_with_one_site_is_refused(
    sites: tuple[str, ...], minimum: int, tmp_path: Path
) -> None:
    alone = replace(job(tmp_path), sites=sites, site_rules=replace(AT_ONCE, minimum_sites=minimum))
    (tmp_path / "north.csv").unlink()
    site = Site("north", SiteSettings(tmp_path / "north.csv"), tmp_path / "kept", SITES)
    with pytest.raises(RefusedError, match=r"may go on with 1, this site's policy .* at least 2"):
        site.prepare(plan_to_bytes(alone))


def test_sites_that_the_authority_did_not_sign_are_refused(tmp_path: Path) -> None:
    kits = provision(tmp_path / "kits", host="localhost", port=8002, sites=SITES[:2])
    kit = kits.sites["north"]
    roster = read_roster(kit)
    assert roster == SITES[:2]
    site = Site("north", SiteSettings(tmp_path / "north.csv"), tmp_path / "kept", roster)
    with pytest.raises(RefusedError, match="not in this federation's signed list"):
        site.prepare(plan_to_bytes(job(tmp_path)))
    path = kit / "startup" / ROSTER_FILE
    forged = json.loads(path.read_text()) | {"sites": list(SITES)}
    path.write_text(json.dumps(forged))
    with pytest.raises(InputError, match="not signed by this federation's authority"):
        read_roster(kit)
    path.unlink()
    with pytest.raises(InputError, match=r"roster\.json is missing"):
        read_roster(kit)
    # As a kit that the engine alone has provisioned: the site's own settings list the sites.
    own = SiteSettings(tmp_path / "north.csv")
    write_site_settings(kit, own)
    with pytest.raises(InputError, match=r'name them in .*: "sites": '):
        read_roster(kit)
    write_site_settings(kit, replace(own, sites=SITES))
    assert read_roster(kit) == SITES


def test_the_rows_behind_the_figures_are_listed_at_the_site_alone(tmp_path: Path) -> None:
    plan = replace(job(tmp_path), held_out=0.25)
    asked = AskedSite(tmp_path, plan, SiteSettings(tmp_path / "north.csv", suppress_below=1))
    asked.begin()
    (path,) = (tmp_path / "kept").glob("held_out-*.json")
    listed = json.loads(path.read_text())
    rows = len((tmp_path / "north.csv").read_text().splitlines()) - 1
    numbers = listed["rows"]["north"]
    assert len(numbers) == pytest.approx(rows / 4, abs=1)
    assert set(numbers) <= set(range(1, rows + 1))
    assert listed.keys() == {"format", "about", "share", "seed", "rows"}
    with_validation = replace(plan, validation=0.25, run="other")
    AskedSite(tmp_path, with_validation, asked.site._settings).begin()
    (again,) = set((tmp_path / "kept").glob("held_out-*.json")) - {path}
    beside = json.loads(again.read_text())
    assert beside["rows"] == listed["rows"]
    apart = beside["validation"]["rows"]["north"]
    assert len(apart) == pytest.approx((rows - len(numbers)) / 4, abs=1)
    assert not set(apart) & set(numbers)
