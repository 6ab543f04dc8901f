"""A learning rate from sums over sites: that of the pooled rows, and kept once it is agreed on."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from fedminmax.config.planned_runs import planned_runs
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.bounds import POWER_ITERATIONS, rounded_rate
from fedminmax.core.errors import InputError
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import AGREEMENT_FILE
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import sections_to_bytes
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.runs.plan import federate, plan_table_runs, with_class
from tests.network.network_problem import CONFIG, SITES, DirectTransport, plan_of, write_tables
from tests.training.disturbed_simulation import SilentTransport

OPEN = CONFIG.replace("learning_rate = 0.3\n", "").replace('"none"', '"fedavg"')
BRIER_CURVATURE = 0.6163
# Two groups, each with a direction of four features and the intercept.
NUMBERS = 2 * 5


class Killed(BaseException):
    """What no program survives."""


class DyingTransport(DirectTransport):
    """The process ends when the first round is asked for."""

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if endpoint == "answer":
            raise Killed
        return super().answer(site, endpoint, payload)


def job(folder: Path, text: str = OPEN) -> tuple[TableConfig, NetworkPlan]:
    path = write_tables(folder)
    path.write_text(text)
    config = read_config(path)
    return config, plan_of(config, planned_runs(config.method))


def agreed_rates(plan: NetworkPlan, transport: DirectTransport, folder: Path) -> set[str]:
    agreement = agree(plan, PlainSites(plan, transport), folder / "run")
    return {str(run.options["learning_rate"]) for run in agreement.plan.runs}


def by_eigenvalues(config: TableConfig, sites: tuple[str, ...]) -> float:
    """1 / (curvature of the loss times the largest eigenvalue of a group), by numpy."""
    tables = load_federated_tables(config)
    parts = [part.examples for part in tables.train if part.owner in sites]
    x = np.concatenate([part.x.double().numpy() for part in parts])
    group = np.concatenate([part.group.numpy() for part in parts])
    largest = 0.0
    for number in set(group.tolist()):
        rows = np.column_stack([x[group == number], np.ones((group == number).sum())])
        largest = max(largest, float(np.linalg.eigvalsh(rows.T @ rows / len(rows)).max()))
    return 1.0 / (BRIER_CURVATURE * largest)


@pytest.mark.parametrize(
    "model",
    [
        'kind = "logistic"',
        'kind = "logistic"\nloss = "cross_entropy"',
        'kind = "mlp"\nhidden = [3]\ninputs = "columns"',
        'kind = "mlp"\nhidden = [3]',
    ],
)
def test_the_rate_is_that_of_the_pooled_tables(model: str, tmp_path: Path) -> None:
    config, plan = job(tmp_path, OPEN.replace('kind = "logistic"', model))
    transport = DirectTransport(tmp_path)
    (rate,) = agreed_rates(plan, transport, tmp_path)
    tables, prepared = with_class(config, load_federated_tables(config))
    federation = federate(config, tables, "cpu", prepared=prepared)
    runs = plan_table_runs(config, federation, tmp_path)
    assert [run.method.learning_rate for run in runs] == [float(rate)] * 2
    asked = [endpoint for endpoint, _ in transport.calls]
    if config.model.has_codes:
        before = asked.index("curvature")
        assert asked[before - 1] == "encode"
        asked = ["prepare", "encode", *asked[before:]]
    assert asked == ["prepare", "encode", *["curvature"] * POWER_ITERATIONS, "take_rate"]


def test_the_rate_is_one_over_the_largest_curvature(tmp_path: Path) -> None:
    config, plan = job(tmp_path)
    (rate,) = agreed_rates(plan, DirectTransport(tmp_path), tmp_path)
    assert rate == rounded_rate(by_eigenvalues(config, SITES))


def test_a_silent_site_is_left_out_of_sums_and_counts(tmp_path: Path) -> None:
    config, plan = job(tmp_path)
    # South's rows are the farthest out: without them a larger step is safe.
    table = tmp_path / "south.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, *["400.0,Female,a,yes"] * 5]) + "\n")
    rates = []
    for silent in ((), ("south",)):
        transport = SilentTransport(tmp_path, "curvature", silent)
        (rate,) = agreed_rates(plan, transport, tmp_path / str(silent))
        present = tuple(site for site in SITES if site not in silent)
        assert rate == rounded_rate(by_eigenvalues(config, present))
        rates.append(float(rate))
    assert rates[0] < rates[1]


def test_nobody_who_answers_is_a_mistake_in_one_line(tmp_path: Path) -> None:
    _, plan = job(tmp_path)
    transport = SilentTransport(tmp_path, "curvature", SITES)
    outcome = run_plan(plan, transport, tmp_path / "run")
    assert outcome.error is not None
    assert "\n" not in outcome.error
    assert "no site helped to find a safe learning rate" in outcome.error
    assert "north is not connected; south is not connected" in outcome.error
    assert "set learning_rate in [method]" in outcome.error


class SpoilingTransport(DirectTransport):
    """Some sites send something else than their sums."""

    def __init__(self, folder: Path, sites: tuple[str, ...], instead: bytes) -> None:
        super().__init__(folder)
        self._spoiled = sites
        self._instead = instead

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        message = super().answer(site, endpoint, payload)
        return self._instead if endpoint == "curvature" and site in self._spoiled else message


@pytest.mark.parametrize(
    "instead",
    [b"no sums", sections_to_bytes({"sums": torch.full((NUMBERS,), torch.nan).double()}, 0.0)],
)
def test_a_bad_reply_is_left_out_like_silence(instead: bytes, tmp_path: Path) -> None:
    config, plan = job(tmp_path)
    (rate,) = agreed_rates(plan, SpoilingTransport(tmp_path, ("south",), instead), tmp_path)
    assert rate == rounded_rate(by_eigenvalues(config, ("north", "west")))


@pytest.mark.parametrize("factor", [1e6, -1.0], ids=str)
def test_a_curvature_that_no_rows_have_is_refused_by_name(factor: float, tmp_path: Path) -> None:
    """It would freeze the learning rate for everybody."""

    class Curved(DirectTransport):
        def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
            message = super().answer(site, endpoint, payload)
            if (site, endpoint) != ("south", "curvature"):
                return message
            assert isinstance(message, bytes)
            return sections_to_bytes({"sums": factor * load(message)["sums"]}, 0.0)

    config, plan = job(tmp_path)
    agreement = agree(plan, PlainSites(plan, Curved(tmp_path)), tmp_path / "run")
    assert agreement.refused == {
        "south": "south sent a curvature that is impossible for its rows; refused"
    }
    assert agreement.census.counts[1].tolist() == [0, 0]
    expected = rounded_rate(by_eigenvalues(config, ("north", "west")))
    assert {run.options["learning_rate"] for run in agreement.plan.runs} == {expected}


def test_sums_of_no_rows_from_all_sites_are_a_mistake_in_one_line(tmp_path: Path) -> None:
    _, plan = job(tmp_path)
    nothing = sections_to_bytes({"sums": torch.zeros(NUMBERS, dtype=torch.float64)}, 0.0)
    outcome = run_plan(plan, SpoilingTransport(tmp_path, SITES, nothing), tmp_path / "run")
    assert outcome.error is not None
    assert "no site helped to find a safe learning rate" in outcome.error


def test_a_run_that_goes_on_keeps_its_rate_and_asks_no_more(tmp_path: Path) -> None:
    _, plan = job(tmp_path)
    with pytest.raises(Killed):
        run_plan(plan, DyingTransport(tmp_path), tmp_path / "run")
    kept = json.loads((tmp_path / "run" / AGREEMENT_FILE).read_text())
    again = DirectTransport(tmp_path)
    assert run_plan(plan, again, tmp_path / "run").error is None
    asked = [endpoint for endpoint, _ in again.calls]
    assert "curvature" not in asked
    assert asked.count("take_rate") == 1
    assert json.loads((tmp_path / "run" / AGREEMENT_FILE).read_text()) == kept
    # Nothing but the interruption differs from a run in which the rate was written down.
    rate = kept["learning_rate"]
    whole = tmp_path / "whole"
    whole.mkdir()
    _, given = job(whole, OPEN.replace("rounds = 3", f"rounds = 3\nlearning_rate = {rate}"))
    run_plan(given, DirectTransport(whole), whole / "run")
    for number in range(2):
        members, expected = (
            read_members(run_folder(folder / "run", plan, number)) for folder in (tmp_path, whole)
        )
        assert torch.equal(members, expected)


def test_a_site_that_does_not_take_the_rate_takes_no_part(tmp_path: Path) -> None:
    _, plan = job(tmp_path)
    outcome = run_plan(plan, SilentTransport(tmp_path, "take_rate", ["south"]), tmp_path / "run")
    assert outcome.error is None
    assert outcome.refused == {"south": "south is not connected"}


@pytest.mark.parametrize("rate", [b"fast", b"nan", b"-1", b"0", b"1" * 31, "0.1", None])
def test_a_site_refuses_what_is_no_rate(rate: object, tmp_path: Path) -> None:
    _, plan = job(tmp_path)
    transport = DirectTransport(tmp_path)
    with pytest.raises(RefusedError, match="before its encoding"):
        transport.sites["north"].take_rate(b"0.1")
    with pytest.raises(RefusedError, match="before its encoding"):
        transport.sites["north"].curvature(b"")
    agree(plan, PlainSites(plan, transport), tmp_path / "run")
    with pytest.raises(InputError):
        transport.sites["north"].take_rate(rate)
