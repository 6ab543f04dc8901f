"""Noise that sites add themselves: as much as promised, the same for the same question, and once.

With the draws replaced by zeros a run between sites is the clipped simulation; the noise itself is
compared with the plan at single sites.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.sections import PrivacySection
from fedminmax.core.messages import Order
from fedminmax.core.noise import Unit
from fedminmax.core.privacy import mechanism as mechanism_module
from fedminmax.core.privacy.mechanism import SMALL_PART, noise_multiplier
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.network.secure.messages import Ask, from_bytes, to_bytes
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.masked_asking import MASKED_FILE
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.site.privacy import SPENT_FILE
from fedminmax.network.wire.messages import order_from_bytes, order_to_bytes
from fedminmax.network.wire.plan import ALL_SITES, task_of
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.network.masked_problem import FOUR_SITES, FourSites, Killed, listed_config
from tests.network.network_problem import SITES
from tests.network.private_sites import (
    PROMISE,
    OneSite,
    Questioned,
    private_plan,
    shared_encoding,
    with_limit,
)

BOTH_BLOCKS = math.sqrt(1.0 + SMALL_PART**2)
MAX_LOSS = 2.0


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace all draws by zeros; what the noise is planned to be stays."""

    def nothing(_key: bytes, _label: str, numbers: int) -> NDArray[np.float64]:
        return np.zeros(numbers)

    monkeypatch.setattr(mechanism_module, "gaussian_noise", nothing)


def spent(folder: Path, site: str) -> list[dict[str, Any]]:
    path = folder / f"{site}-kept" / SPENT_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("unit", "run"),
    [
        (Unit.ROW, PlannedRun("fedminmax-fast", {"curvature": "false"}, 2)),
        (Unit.ROW, PlannedRun("fedminmax", {"learning_rate": "safe"}, 2)),
        (Unit.SITE, PlannedRun("fedavg", {"learning_rate": "0.1"}, 2)),
    ],
)
def test_without_the_draws_it_is_the_clipped_simulation(
    unit: Unit, run: PlannedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch)
    config = listed_config(tmp_path)
    # Little noise, and so a fine grid.
    promise = replace(PROMISE, unit=unit, epsilon=50.0)
    plan = private_plan(config, promise, run)
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None
    choice = PrivacySection(promise.epsilon, promise.delta, clip=promise.clip, unit=unit)
    tables = load_federated_tables(replace(config, privacy=choice))
    task = task_of(plan, tables.encoding)
    sites = [
        (part.examples.x.double(), part.examples.y, part.examples.group) for part in tables.train
    ]
    federation = Simulation(task.model, task.loss, sites, privacy=promise)
    method = FedMinMax() if run.method == "fedminmax" else run.build()
    *_, last = train(federation, method, rounds=2, seed=plan.seed)
    found = read_members(run_folder(tmp_path / "run", plan, 0))
    torch.testing.assert_close(found, last.members, rtol=1e-9, atol=1e-9)
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    assert agreed.counts[ALL_SITES] == federation.census.counts[0].tolist()


def test_the_sites_noise_adds_up_to_the_planned_one_if_the_colluding_are_missing(
    tmp_path: Path,
) -> None:
    """Of four sites the noise of any three has the promised deviation.

    300 orders give 600 loss sums and 6,000 numbers of steps. The sum of n squared standard normal
    numbers has the deviation sqrt(2 n): six of them are the tolerance.
    """
    config = listed_config(tmp_path)
    promise = replace(PROMISE, colluding=1)
    plan = private_plan(config, promise, sites=FOUR_SITES)
    encoding = shared_encoding(plan, tmp_path)
    sites = [OneSite(plan, tmp_path, site, encoding) for site in FOUR_SITES[1:]]
    order = sites[0].order()
    total: dict[str, list[NDArray[np.float64]]] = {"step": [], "losses": []}
    for number in range(300):
        replies = [site.reply(order, str(number).encode()) for site in sites]
        for name, drawn in total.items():
            drawn.append(np.sum([reply[name] for reply in replies], axis=0))
    both = noise_multiplier(promise.epsilon, promise.delta, promise.rounds + 1) * BOTH_BLOCKS
    deviations = {"step": both * promise.clip, "losses": both / SMALL_PART * MAX_LOSS / 2}
    for name, drawn in total.items():
        sums = np.stack(drawn)
        standard = ((sums - sums.mean(axis=0)) / deviations[name]).ravel()
        assert abs(np.mean(standard**2) - 1.0) < 6.0 * math.sqrt(2.0 / standard.size)
        assert stats.kstest(standard, "norm").pvalue > 1e-6


def test_the_same_question_has_the_same_answer_and_no_other_has_its_noise(
    tmp_path: Path,
) -> None:
    plan = private_plan(listed_config(tmp_path))
    encoding = shared_encoding(plan, tmp_path)
    site = OneSite(plan, tmp_path, "north", encoding)
    order = site.order()
    first, census = site.reply(order), site.census()
    key = site.folder / "test.noise.key"
    assert key.stat().st_mode & 0o077 == 0
    # A restarted process.
    again = OneSite(plan, tmp_path, "north", encoding)
    assert torch.equal(again.reply(order)["step"], first["step"])
    assert torch.equal(again.census()["moment"], census["moment"])
    others = [
        site.reply(order, b"another order"),
        site.reply(replace(order, key=replace(order.key, round=2))),
        site.reply(replace(order, phase=1)),
        OneSite(replace(plan, run="other"), tmp_path, "north", encoding).reply(order),
        OneSite(plan, tmp_path, "north", encoding, kept="elsewhere").reply(order),
    ]
    for other in others:
        assert (other["step"] - first["step"]).abs().min() > 1e-9


def test_no_row_changes_what_a_site_sends_by_more_than_its_noise_is_planned_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables with one row less, and with one row more, some of them far off.

    Which rows are held out is part of it: one row more must not move another.
    """
    silence(monkeypatch)
    plan = private_plan(listed_config(tmp_path))
    assert plan.held_out == 0.2
    encoding = shared_encoding(plan, tmp_path)
    table = tmp_path / "west.csv"
    header, *lines = table.read_text().splitlines()
    lines = lines[:8]

    def sums(rows: list[str], number: int) -> tuple[Any, Any]:
        table.write_text("\n".join([header, *rows]) + "\n")
        site = OneSite(plan, tmp_path, "west", encoding, kept=f"kept-{number}")
        return site.reply(site.order()), site.census()

    far_off = [
        f"{age},{sex},a,{ill}"
        for age in (-400, 900)
        for sex in ("Female", "Male")
        for ill in ("no", "yes")
    ]
    neighbours = [lines[:place] + lines[place + 1 :] for place in range(len(lines))]
    neighbours += [[*lines, row] for row in far_off]
    before, counted = sums(lines, 0)
    longest = PROMISE.clip / (16.0 * math.sqrt(2.0) / 27.0)
    rounds, censuses = [], []
    for number, rows in enumerate(neighbours, start=1):
        after, recounted = sums(rows, number)
        step = np.linalg.norm(after["step"] - before["step"]) / PROMISE.clip
        losses = np.linalg.norm(after["losses"] - before["losses"]) / (0.5 * MAX_LOSS)
        rounds.append(math.hypot(step, SMALL_PART * losses))
        lower = (recounted["moment"] - counted["moment"]).numpy()
        place, other = np.tril_indices(5)
        twice = np.where(place == other, 1.0, math.sqrt(2.0))
        moment = np.linalg.norm(twice * lower) / longest**2
        counts = np.linalg.norm(recounted["counts"] - counted["counts"])
        censuses.append(math.hypot(moment, SMALL_PART * counts))
    for found in (rounds, censuses):
        assert max(found) <= BOTH_BLOCKS + 1e-9
        assert max(found) > 0.8 * BOTH_BLOCKS


def test_a_run_that_was_killed_goes_on_with_its_noise_and_spends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Keys that are the same in both runs, so that models can be compared.
    same = SimpleNamespace(token_bytes=bytes)
    monkeypatch.setattr("fedminmax.network.site.privacy.secrets", same)
    plan = private_plan(listed_config(tmp_path))
    with suppress(Killed):
        run_plan(plan, FourSites(tmp_path, killed_at=("unmask", 4)), tmp_path / "run")
        pytest.fail("nobody was killed")
    assert (tmp_path / "north-kept" / "test.noise.key").exists()
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None
    assert [len(spent(tmp_path, site)) for site in SITES] == [1, 1, 1]
    other = replace(plan, run="other")
    assert run_plan(other, FourSites(tmp_path), tmp_path / "other").error is None
    assert [len(spent(tmp_path, site)) for site in SITES] == [2, 2, 2]
    members = [read_members(run_folder(tmp_path / name, plan, 0)) for name in ("run", "other")]
    assert torch.equal(*members)
    (line, _) = spent(tmp_path, "north")
    assert line["noise_multiplier"] == noise_multiplier(PROMISE.epsilon, PROMISE.delta, 3)
    # It is over: whoever asks again gets no new noise.
    assert not list(tmp_path.glob("*-kept/*.noise.key"))
    error = run_plan(plan, FourSites(tmp_path), tmp_path / "from the beginning").error
    assert error is not None
    assert "run 'test' is over at this site" in error


def test_another_order_for_a_round_is_refused_for_ever(tmp_path: Path) -> None:
    class Turned(Questioned):
        def spoil(self, question: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
            if question != "answer":
                return payload
            like = torch.zeros(10, dtype=torch.float64)
            order = order_from_bytes(payload["order"], like, "it")
            turned: Order = replace(order, parameters=order.parameters + 1.0)
            return {**payload, "order": order_to_bytes(turned)}

    plan = private_plan(listed_config(tmp_path))
    with suppress(Killed):
        run_plan(plan, FourSites(tmp_path, killed_at=("unmask", 3)), tmp_path / "run")
        pytest.fail("nobody was killed")
    error = run_plan(plan, Turned(tmp_path), tmp_path / "run").error
    assert error is not None
    assert "answered 1 different question about round 1" in error
    assert "\n" not in error


def test_a_site_does_not_answer_for_a_total_with_too_little_noise(tmp_path: Path) -> None:
    class Fewer(Questioned):
        def spoil(self, question: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
            if question != "answer":
                return payload
            ask = from_bytes(payload["secure"], Ask, "it")
            return {**payload, "secure": to_bytes(replace(ask, sites=ask.sites[:3]))}

    plan = private_plan(listed_config(tmp_path), sites=FOUR_SITES)
    transport = Fewer(tmp_path)
    error = run_plan(plan, transport, tmp_path / "run").error
    assert error is not None
    assert "the server asks 3 sites, at least 4 were agreed" in error
    # Of groups and categories the server was told that they occur: no number of rows.
    summary = json.loads(json.loads((tmp_path / "run" / MASKED_FILE).read_text())["summary"])
    occur = [rows for _, _, rows in summary["strata"]] + summary["categories"]["ward"]
    assert 0 < max(occur) <= len(FOUR_SITES)
    assert {label for _, label, _ in summary["strata"]} == {0}


def test_a_round_without_enough_noise_is_not_answered(tmp_path: Path) -> None:
    config = listed_config(tmp_path)
    gone = {("east", "answer"): 2}
    strict = private_plan(config, sites=FOUR_SITES)
    error = run_plan(strict, FourSites(tmp_path, gone=gone), tmp_path / "strict").error
    assert error is not None
    assert "3 sites are left for a masked total over at least 4" in error
    # With one site more than are needed, the run goes on without it.
    plan = replace(
        private_plan(config, replace(PROMISE, colluding=1), sites=FOUR_SITES), run="spare"
    )
    assert run_plan(plan, FourSites(tmp_path, gone=gone), tmp_path / "spare").error is None
    rounds = read_rounds(run_folder(tmp_path / "spare", plan, 0) / ROUNDS_FILE)
    assert [entry.sites.took_part for entry in rounds] == [FOUR_SITES, SITES]


def test_a_site_refuses_what_exceeds_its_limit_or_changes_a_run(tmp_path: Path) -> None:
    config = listed_config(tmp_path)
    plan = private_plan(config)
    sites = with_limit(FourSites(tmp_path), tmp_path, 10.0)
    assert run_plan(plan, sites, tmp_path / "run").error is None
    again = with_limit(FourSites(tmp_path), tmp_path, 10.0)
    error = run_plan(replace(plan, run="second"), again, tmp_path / "second").error
    assert error is not None
    assert "this site's limit is epsilon 10 for its table: earlier runs spent 8" in error
    assert "\n" not in error
    assert [len(spent(tmp_path, site)) for site in SITES] == [1, 1, 1]
    # The same name, and other sites: the noise would have another size.
    error = run_plan(
        private_plan(config, sites=FOUR_SITES), FourSites(tmp_path), tmp_path / "more"
    ).error
    assert error is not None
    assert "began here with another plan" in error
