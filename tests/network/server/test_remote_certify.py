"""What is proved over a network after a run: the simulator's numbers, within the sites' rules."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.config.sections import LossName, ModelSection
from fedminmax.core.certificate import Certificate
from fedminmax.core.messages import Order, RoundKey
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import ProofResult, read_members, read_proof, run_plan
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import order_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, digest_of
from fedminmax.runs.network import collect_network_run
from fedminmax.training.certify import MAX_ROUNDS, certify
from tests.network.network_problem import (
    AT_ONCE,
    SITES,
    DirectTransport,
    plan_of,
    simulated_federation,
    write_tables,
)

ROUNDS = 4
RUNS = [
    PlannedRun("fedminmax", {"learning_rate": "0.3"}, ROUNDS),
    PlannedRun("fedavg", {"learning_rate": "0.3", "epochs": "1"}, ROUNDS),
]


def job(folder: Path, *, loss: LossName = "cross_entropy") -> NetworkPlan:
    plan = plan_of(read_config(write_tables(folder)), RUNS, AT_ONCE)
    return replace(plan, model=ModelSection("logistic", (), loss, 1e-2), certify=True)


def proof_after(folder: Path, plan: NetworkPlan, transport: DirectTransport) -> ProofResult:
    outcome = run_plan(plan, transport, folder / "run")
    assert outcome.error is None
    told = read_proof(run_folder(folder / "run", plan, 0))
    assert told is not None
    return told


def numbers_of(proved: Certificate) -> tuple[float, ...]:
    return proved.upper, proved.lower, proved.penalty, proved.ridge


def test_the_bounds_are_the_simulators(tmp_path: Path) -> None:
    plan, transport = job(tmp_path), DirectTransport(tmp_path)
    told = proof_after(tmp_path, plan, transport)
    members = read_members(run_folder(tmp_path / "run", plan, 0))
    expected = certify(simulated_federation(tmp_path, plan, fused=True), members[0])
    assert told.certificate is not None
    assert numbers_of(told.certificate) == pytest.approx(numbers_of(expected), rel=1e-9, abs=1e-12)
    # Four rounds of Algorithm 1 are far from the best.
    assert told.certificate.gap > 0.01
    # The baseline is there to compare with.
    assert read_proof(run_folder(tmp_path / "run", plan, 1)) is None
    asked = [sites for endpoint, sites in transport.calls if endpoint == "certify"]
    assert 1 < len(asked) <= MAX_ROUNDS
    assert {*asked} == {SITES}


def test_results_have_the_proof_in_words(tmp_path: Path) -> None:
    plan = job(tmp_path)
    told = proof_after(tmp_path, plan, DirectTransport(tmp_path))
    config = replace(read_config(tmp_path / "fedminmax.toml"), model=plan.model)
    results, baseline = collect_network_run(tmp_path / "run", plan, config, tmp_path / "out")
    assert results.proof is not None
    assert results.proof == told.certificate
    assert baseline.proof is None
    assert "Certified: no logistic model" in (tmp_path / "out" / "model_card.md").read_text()


class Dying(DirectTransport):
    """The server dies when it asks for the proof's third round."""

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if [name for name, _ in self.calls].count("certify") == 3:
            raise KeyboardInterrupt
        return super().answer(site, endpoint, payload)


def test_a_killed_proof_is_done_again_to_the_same_numbers(tmp_path: Path) -> None:
    plan = job(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, Dying(tmp_path), tmp_path / "run")
    assert read_proof(run_folder(tmp_path / "run", plan, 0)) is None
    again = proof_after(tmp_path, plan, DirectTransport(tmp_path))
    whole = tmp_path / "whole"
    whole.mkdir()
    assert again == proof_after(whole, job(whole), DirectTransport(whole))


class WithoutWest(DirectTransport):
    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if site == "west" and endpoint == "certify":
            raise RefusedError("west: not today")
        return super().answer(site, endpoint, payload)


def test_without_a_site_nothing_is_proved_and_the_results_say_so(tmp_path: Path) -> None:
    plan = job(tmp_path)
    told = proof_after(tmp_path, plan, WithoutWest(tmp_path))
    assert told.certificate is None
    config = replace(read_config(tmp_path / "fedminmax.toml"), model=plan.model)
    results, _ = collect_network_run(tmp_path / "run", plan, config, tmp_path / "out")
    assert results.proof is None
    assert (
        "nothing is proved: only 84 of 108 training rows were reported (west: not today)"
        in results.warnings
    )


def test_a_method_that_proves_its_answer_asks_no_more(tmp_path: Path) -> None:
    plan = replace(job(tmp_path), runs=(PlannedRun("fedminmax-fast", {}, 20),))
    transport = DirectTransport(tmp_path)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    assert "certify" not in [endpoint for endpoint, _ in transport.calls]


def order(number: int, model: float = 0.1, phase: int = 0) -> bytes:
    parameters = torch.full((10,), model, dtype=torch.float64)
    weights = torch.zeros(0, dtype=torch.float64)
    return order_to_bytes(Order(RoundKey(0, number), parameters, weights, phase))


def test_a_site_answers_a_proof_in_order_and_within_its_plan(tmp_path: Path) -> None:
    plan = replace(job(tmp_path), runs=tuple(RUNS[:1]))
    transport = DirectTransport(tmp_path)
    run_plan(plan, transport, tmp_path / "run")
    north = transport.sites["north"]
    asked = [endpoint for endpoint, _ in transport.calls].count("certify")
    assert asked < MAX_ROUNDS
    for run, bad, reason in [
        (0, order(0), "round 0 of a proof"),
        (0, order(MAX_ROUNDS + 1), "round 21 of a proof"),
        (0, order(1, phase=1), "round 1 of a proof"),
        (0, order(1), f"round 1 of the proof of run 1 after round {asked} of the proof of run 1"),
        (1, order(1), "which its plan does not have"),
    ]:
        with pytest.raises(RefusedError, match=reason):
            north.certify(run, bad)
    # Three models for a round of the proof, as for any other.
    for model in (0.1, 0.2, 0.3):
        north.certify(0, order(asked + 1, model))
    with pytest.raises(RefusedError, match="answered 3 different questions"):
        north.certify(0, order(asked + 1, 0.4))
    # No round of the run after its proof.
    like = Order(RoundKey(plan.seed, ROUNDS), torch.zeros(10).double(), torch.ones(2).double())
    with pytest.raises(RefusedError, match=f"round {ROUNDS}, question 1, of run 1 after round"):
        north.answer(0, order_to_bytes(like))


def test_a_plan_without_a_proof_is_not_asked_for_one(tmp_path: Path) -> None:
    plan = replace(job(tmp_path), certify=False)
    assert digest_of(plan) != digest_of(replace(plan, certify=True))
    transport = DirectTransport(tmp_path)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    with pytest.raises(RefusedError, match="which its plan does not have"):
        transport.sites["north"].certify(0, order(1))


def test_what_cannot_be_proved_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    transport = DirectTransport(tmp_path)
    outcome = run_plan(job(tmp_path, loss="brier"), transport, tmp_path / "run")
    assert outcome.error is not None
    assert "asks for a proof about a model that cannot be certified" in outcome.error
    assert [endpoint for endpoint, _ in transport.calls] == ["prepare"]


def test_a_wide_models_proof_is_one_round_of_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedminmax.methods.shared.second_order_state.MAX_CURVATURE", 0)
    plan, transport = job(tmp_path), DirectTransport(tmp_path)
    told = proof_after(tmp_path, plan, transport)
    members = read_members(run_folder(tmp_path / "run", plan, 0))
    expected = certify(simulated_federation(tmp_path, plan, fused=True), members[0])
    assert told.certificate is not None
    assert numbers_of(told.certificate) == pytest.approx(numbers_of(expected), rel=1e-9, abs=1e-12)
    assert [endpoint for endpoint, _ in transport.calls].count("certify") == 1
