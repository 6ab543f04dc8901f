"""Sites that answer badly, late or not at all: named, left out, asked again."""

import errno
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.config.sections import ModelSection
from fedminmax.core.messages import Sums
from fedminmax.network.server import run
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, read_outcome, run_plan
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import sums_from_bytes, sums_to_bytes
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training import checkpoint as resumable
from fedminmax.training.checkpoint import Written, checkpoint_paths, save_checkpoint
from fedminmax.training.progress import Progress
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from tests.network.network_problem import (
    AT_ONCE,
    SITES,
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

GROUPS = 2
Spoil = Callable[[Sums], Sums]


class FaultyTransport(DirectTransport):
    """One site, "south", goes wrong when it is asked in certain rounds."""

    def __init__(self, folder: Path, go_wrong: Callable[[bytes], object]) -> None:
        super().__init__(folder)
        self._go_wrong = go_wrong
        self.wrong_questions: range = range(1, 1000)
        self._questions = 0

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        message = super().answer(site, endpoint, payload)
        if site != "south" or endpoint != "answer":
            return message
        self._questions += 1
        if self._questions not in self.wrong_questions:
            return message
        assert isinstance(message, bytes)
        return self._go_wrong(message)


def spoiled(spoil: Spoil) -> Callable[[bytes], bytes]:
    def change(message: bytes) -> bytes:
        like = torch.zeros(10, dtype=torch.float64)
        reply, seconds = sums_from_bytes(message, like, groups=GROUPS, limit=2**20, sender="south")
        return sums_to_bytes(spoil(reply), seconds)

    return change


def too_late(_: bytes) -> object:
    raise TimeoutError


def raising(_: bytes) -> object:
    raise RefusedError("south: its work failed")


def job(folder: Path, rounds: int = 3, site_rules: SiteRules = AT_ONCE) -> NetworkPlan:
    config = read_config(write_tables(folder))
    return plan_of(config, [PlannedRun("fedminmax", {}, rounds)], site_rules)


def rounds_of(folder: Path, plan: NetworkPlan) -> list[RoundRecord]:
    return read_rounds(run_folder(folder / "run", plan, 0) / ROUNDS_FILE)


WRONG: dict[str, tuple[Callable[[bytes], object], str]] = {
    "NaN": (spoiled(lambda r: replace(r, step=r.step * torch.nan)), "NaN or infinity"),
    "infinite loss": (spoiled(lambda r: replace(r, group_loss=r.group_loss / 0)), "NaN or inf"),
    "infinite scale": (spoiled(lambda r: replace(r, scale=torch.inf)), "scale with NaN"),
    "negative scale": (spoiled(lambda r: replace(r, scale=-1.0)), "a scale of -1, expected 36"),
    "huge scale": (spoiled(lambda r: replace(r, scale=1e300)), "a scale of 1e+300, expected 36"),
    "no scale": (spoiled(lambda r: replace(r, scale=0.0)), "a scale of 0, expected 36"),
    "its own model": (
        spoiled(lambda r: replace(r, step=r.step * -1e6, scale=r.scale * 1e6)),
        "a scale of 3.6e+07, expected 36",
    ),
    "curvature": (spoiled(lambda r: replace(r, curvature=-1e300)), "a curvature of -1e+300"),
    "evaluations": (
        spoiled(lambda r: replace(r, gradient_evaluations=2**62)),
        "gradient evaluations, expected 36",
    ),
    "negative loss": (spoiled(lambda r: replace(r, group_loss=-r.group_loss)), "a negative loss"),
    # The model starts at 0, where every row's Brier loss is 0.5, and 2 is the most at any model.
    "ten times its loss": (
        spoiled(lambda r: replace(r, group_loss=r.group_loss * 10)),
        "at most",
    ),
    "loss of 1e300": (spoiled(lambda r: replace(r, group_loss=r.group_loss + 1e300)), "at most"),
    "half of its counts": (
        spoiled(lambda r: replace(r, group_count=r.group_count // 2)),
        "rows in this round, but its census has 36",
    ),
    "losses of sites": (
        spoiled(lambda r: replace(r, site_loss=r.group_loss + 0, site_count=r.group_count + 0)),
        "losses of 2 sites, expected 0",
    ),
    "statistics": (spoiled(lambda r: replace(r, statistics=r.group_loss + 0)), "further numbers"),
    "wrong shape": (spoiled(lambda r: replace(r, step=r.step[1:])), "expected 10 and 0"),
    "negative counts": (spoiled(lambda r: replace(r, group_count=-r.group_count)), "negative"),
    "impossible counts": (
        spoiled(lambda r: replace(r, group_count=r.group_count * 2)),
        "but its census has",
    ),
    "a loss of nobody": (
        spoiled(lambda r: replace(r, group_count=r.group_count * 0)),
        "counts no rows of",
    ),
    # Short enough for its rows, but its losses since round 1 fell along the true gradient.
    "turned round": (
        spoiled(lambda r: replace(r, step=r.step * -3)),
        "does not fit how its own losses changed",
    ),
    "too large": (spoiled(lambda r: replace(r, step=r.step * -99)), "with its rows and this model"),
    "no message": (lambda _: b"hello", "not a message"),
    "no bytes": (lambda _: 3, "expected bytes"),
    "raises": (raising, "its work failed"),
}


# The first numbers of a group's curvature are its diagonal's and its first row's.
WRONG_BY_GROUP: dict[str, tuple[Callable[[bytes], object], str]] = {
    "curvature turned round": (
        spoiled(lambda r: replace(r, statistics=-r.statistics)),
        "not positive semidefinite",
    ),
    "products beyond squares": (
        spoiled(lambda r: replace(r, statistics=r.statistics + torch.eye(30).double()[1])),
        "not positive semidefinite",
    ),
    "curvature of longer rows": (
        spoiled(lambda r: replace(r, statistics=r.statistics * 5)),
        "curvature of",
    ),
    "curvature of other rows": (
        spoiled(lambda r: replace(r, statistics=r.statistics + 1e9)),
        "statistics that its rows cannot have",
    ),
    "no curvature": (spoiled(lambda r: replace(r, statistics=r.statistics[:0])), "expected 20"),
    "one group's gradient": (spoiled(lambda r: replace(r, step=r.step[:10])), "a step of 10"),
    "longer gradients": (spoiled(lambda r: replace(r, step=r.step * 99)), "with its rows and"),
}
FAULTS = [("fedminmax", fault) for fault in WRONG] + [
    ("fedminmax-fast", fault) for fault in WRONG_BY_GROUP
]


@pytest.mark.parametrize(("key", "fault"), FAULTS)
def test_a_bad_reply_is_named_and_left_out(key: str, fault: str, tmp_path: Path) -> None:
    go_wrong, reason = (WRONG | WRONG_BY_GROUP)[fault]
    plan = replace(job(tmp_path), runs=(PlannedRun(key, {}, 3),))
    transport = FaultyTransport(tmp_path, go_wrong)
    transport.wrong_questions = range(2, 3)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    first, second, third = rounds_of(tmp_path, plan)
    assert first.sites.took_part == third.sites.took_part == SITES
    assert second.sites.took_part == ("north", "west")
    assert list(second.sites.refused) == ["south"]
    assert "south" in second.sites.refused["south"]
    assert reason in second.sites.refused["south"]


def test_gradients_by_group_must_fit_how_the_groups_losses_changed(tmp_path: Path) -> None:
    """The closer to the optimum, the shorter the steps, and the less room Taylor's theorem has."""
    plan = replace(job(tmp_path), runs=(PlannedRun("fedminmax-fast", {}, 6),))
    transport = FaultyTransport(tmp_path, spoiled(lambda r: replace(r, step=-r.step)))
    transport.wrong_questions = range(6, 7)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    refused = [entry.sites.refused for entry in rounds_of(tmp_path, plan)]
    assert refused[:-1] == [{}] * 5
    assert "does not fit how its own losses changed" in refused[-1]["south"]


def test_a_site_that_keeps_lying_is_not_asked_any_more(tmp_path: Path) -> None:
    plan = job(tmp_path, rounds=13)
    transport = FaultyTransport(tmp_path, spoiled(lambda r: replace(r, scale=1e300)))
    transport.wrong_questions = range(1, 11)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    rounds = rounds_of(tmp_path, plan)
    assert all(entry.sites.took_part == ("north", "west") for entry in rounds)
    assert "a scale of 1e+300" in rounds[9].sites.refused["south"]
    assert "south sent 10 impossible replies" in rounds[10].sites.refused["south"]
    asked = ["south" in sites for endpoint, sites in transport.calls if endpoint == "answer"]
    assert asked == [True] * 10 + [False] * 3


@pytest.mark.parametrize(("ratio", "took_part"), [(1e3, ("north", "west")), (1e12, SITES)])
def test_local_training_of_a_network_is_compared_with_the_others(
    ratio: float, took_part: tuple[str, ...], tmp_path: Path
) -> None:
    """How far it goes has no limit that is known beforehand."""
    config = read_config(write_tables(tmp_path))
    site_rules = replace(AT_ONCE, max_step_ratio=ratio)
    plan = plan_of(config, [PlannedRun("fedavg", {"epochs": "1"}, 2)], site_rules)
    plan = replace(plan, model=ModelSection("mlp", (3,), "brier"))
    transport = FaultyTransport(tmp_path, spoiled(lambda r: replace(r, step=r.step * 1e7)))
    run_plan(plan, transport, tmp_path / "run")
    assert rounds_of(tmp_path, plan)[0].sites.took_part == took_part


def test_the_only_site_of_a_group_is_not_left_out_but_stops_the_run(tmp_path: Path) -> None:
    women = {"north": 0.0, "south": 1.0, "west": 0.0}
    plan = plan_of(
        read_config(write_tables(tmp_path, women)), [PlannedRun("fedminmax", {}, 3)], AT_ONCE
    )
    transport = FaultyTransport(tmp_path, spoiled(lambda r: replace(r, scale=1e300)))
    transport.wrong_questions = range(2, 1000)
    outcome = run_plan(plan, transport, tmp_path / "run")
    assert outcome.error is not None
    assert "round 2: nobody else has group 'Female' (south sent a scale of 1e+300" in outcome.error
    assert [entry.round for entry in rounds_of(tmp_path, plan)] == [1]
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    members = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(members, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_late_site_is_left_out_for_some_rounds_and_then_asked_again(tmp_path: Path) -> None:
    plan = job(tmp_path, rounds=6, site_rules=replace(AT_ONCE, skip_rounds=2))
    transport = FaultyTransport(tmp_path, too_late)
    transport.wrong_questions = range(2, 3)
    run_plan(plan, transport, tmp_path / "run")
    present = ["south" in entry.sites.took_part for entry in rounds_of(tmp_path, plan)]
    assert present == [True, False, False, False, True, True]
    asked = ["south" in sites for endpoint, sites in transport.calls if endpoint == "answer"]
    assert asked == [True, True, False, False, True, True]


def test_a_late_site_is_asked_first_whether_it_is_there(tmp_path: Path) -> None:
    """One that is gone costs no waiting for an answer, and more rounds pass until the next try."""

    class GoneForAWhile(FaultyTransport):
        def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
            if site == "south" and endpoint == "present" and len(self.asked_present) < 2:
                self.asked_present.append(site)
                raise RefusedError("south cannot be reached")
            return super().answer(site, endpoint, payload)

        asked_present: list[str] = []  # noqa: RUF012 - one instance

    plan = job(tmp_path, rounds=13, site_rules=replace(AT_ONCE, skip_rounds=1))
    transport = GoneForAWhile(tmp_path, too_late)
    transport.wrong_questions = range(2, 3)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    rounds = rounds_of(tmp_path, plan)
    # Late in round 2; tried again in 4 and 7, and there in 12.
    took_part = [entry.round for entry in rounds if "south" in entry.sites.took_part]
    assert took_part == [1, 12, 13]
    assert rounds[1].sites.refused["south"] == "south did not answer in time"
    assert (
        rounds[3].sites.refused["south"]
        == rounds[6].sites.refused["south"]
        == "south is not connected"
    )
    assert rounds[7].sites.refused["south"] == "south was too late and is asked again in round 12"
    assert [sites for endpoint, sites in transport.calls if endpoint == "present"] == (
        [("south",)] * 3
    )


def test_too_few_sites_stop_the_run_with_everything_saved(tmp_path: Path) -> None:
    plan = job(tmp_path, site_rules=replace(AT_ONCE, minimum_sites=3))
    transport = FaultyTransport(tmp_path, raising)
    transport.wrong_questions = range(2, 1000)
    outcome = run_plan(plan, transport, tmp_path / "run")
    assert outcome.error is not None
    assert "round 2: 2 of 3 sites answered, at least 3 are needed" in outcome.error
    assert "its work failed" in outcome.error
    assert read_outcome(tmp_path / "run") == outcome
    # The site works again: the run goes on after round 1, to the undisturbed run's model.
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    assert [entry.round for entry in rounds_of(tmp_path, plan)] == [1, 2, 3]
    members = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(members, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_full_disk_stops_the_run_and_loses_no_saved_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_until_full(
        folder: Path, progress: Progress[Any], last: Written | None = None
    ) -> Written:
        if progress.round == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save_checkpoint(folder, progress, last)

    plan = job(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(run, "SAVING_SHARE", math.inf)
        full.setattr(resumable, "save_checkpoint", save_until_full)
        outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    assert outcome.error is not None
    assert "its disk is full (No space left on device)" in outcome.error
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    assert [entry.round for entry in rounds_of(tmp_path, plan)] == [1, 2, 3]
    members = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(members, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_killed_server_does_the_rounds_since_its_last_checkpoint_again(tmp_path: Path) -> None:
    """The checkpoint is of round 2, the log and the sites are at round 4: all meet again."""
    run_plan(job(tmp_path, rounds=2), DirectTransport(tmp_path), tmp_path / "run")
    plan = job(tmp_path, rounds=4)
    checkpoint, _ = checkpoint_paths(run_folder(tmp_path / "run", plan, 0))
    of_round_2 = checkpoint.read_bytes()
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    checkpoint.write_bytes(of_round_2)
    longer = job(tmp_path, rounds=6)
    transport = DirectTransport(tmp_path)
    assert run_plan(longer, transport, tmp_path / "run").error is None
    assert sum(endpoint == "answer" for endpoint, _ in transport.calls) == 4
    assert [entry.round for entry in rounds_of(tmp_path, longer)] == [1, 2, 3, 4, 5, 6]
    assert all(entry.sites.took_part == SITES for entry in rounds_of(tmp_path, longer))
    members = read_members(run_folder(tmp_path / "run", longer, 0))
    assert torch.equal(members, simulated_members(tmp_path, longer, 0, fused=False))


def test_a_run_that_goes_on_asks_again_of_what_sites_keep(tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = plan_of(config, [PlannedRun("ditto", {"epochs": "1"}, 5)])

    class Killed(BaseException):
        pass

    def die(_: bytes) -> object:
        raise Killed

    transport = FaultyTransport(tmp_path, die)
    transport.wrong_questions = range(4, 1000)
    with pytest.raises(Killed):
        run_plan(plan, transport, tmp_path / "run")
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    whole = tmp_path / "whole"
    whole.mkdir()
    write_tables(whole)
    run_plan(plan, DirectTransport(whole), whole / "run")
    for site in SITES:
        name = f"{site}-kept/test-0/round-5.safetensors"
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_a_group_whose_sites_are_gone_keeps_its_weight(tmp_path: Path) -> None:
    class WestAlone(DirectTransport):
        def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
            if endpoint == "answer" and site != "west" and len(self.calls) > 4:
                raise RefusedError(f"{site} is not connected")
            return super().answer(site, endpoint, payload)

    plan = job(tmp_path, rounds=4, site_rules=replace(AT_ONCE, minimum_sites=1))
    transport = WestAlone(tmp_path, minimum_sites=1)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    *_, before, after = rounds_of(tmp_path, plan)
    assert after.sites.took_part == ("west",)
    assert after.unseen == (0,)
    assert after.weights[0] == pytest.approx(before.weights[0])


def test_a_changed_table_is_refused_when_a_run_goes_on(tmp_path: Path) -> None:
    plan = job(tmp_path)
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    table = tmp_path / "west.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-3]) + "\n")
    longer = replace(plan, runs=(replace(plan.runs[0], rounds=5),))
    outcome = run_plan(longer, DirectTransport(tmp_path), tmp_path / "run")
    assert "another table than when this run began" in outcome.refused["west"]
    entries = rounds_of(tmp_path, longer)
    assert [entry.sites.took_part for entry in entries[3:]] == [("north", "south")] * 2
    assert "another table" in entries[4].sites.refused["west"]


@pytest.mark.parametrize(
    ("forbid", "reason"),
    [
        (
            lambda table: SiteSettings(table, columns=("age", "sex", "ill")),
            "column 'ward' is not among those",
        ),
        (lambda table: SiteSettings(table, suppress_below=30), "fewer than 30 rows here"),
    ],
)
def test_a_site_refuses_what_its_policy_forbids(
    forbid: Callable[[Path], SiteSettings], reason: str, tmp_path: Path
) -> None:
    plan = job(tmp_path)
    transport = DirectTransport(tmp_path)
    transport.sites["south"] = Site("south", forbid(tmp_path / "south.csv"), tmp_path, SITES)
    outcome = run_plan(plan, transport, tmp_path / "run")
    assert reason in outcome.refused["south"]
    assert outcome.error is None
    assert all(entry.sites.took_part == ("north", "west") for entry in rounds_of(tmp_path, plan))
