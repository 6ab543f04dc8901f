"""Servers that want more of sites under a privacy guarantee than one noisy answer per question."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedminmax.config.file_format import FormatChanges
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.errors import InputError
from fedminmax.core.losses import brier_loss
from fedminmax.core.noise import Unit
from fedminmax.core.privacy.ledger import before_and_after
from fedminmax.core.privacy.mechanism import Privacy, Releases, epsilon_of
from fedminmax.data.tables.encoding import EncodedQuantity
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.network.secure.layouts import Layouts, Sizes
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.site.journal import read_journal
from fedminmax.network.site.privacy import PrivateAnswers, check_range, planned_line
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from fedminmax.training.private import shortened
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.network.masked_problem import FourSites, listed_config
from tests.network.private_sites import OneSite, private_plan, shared_encoding


class SecondPlan(FourSites):
    """The server sends each site another plan after its own: one without a promise."""

    def __init__(self, folder: Path, plan: NetworkPlan) -> None:
        super().__init__(folder)
        self.other = replace(plan, run="other", privacy=None)

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        answer = super().answer(site, question, words)
        if question == "prepare":
            with pytest.raises(RefusedError, match="sent a second plan"):
                super().answer(site, question, {"plan": plan_to_bytes(self.other)})
        return answer


def test_a_second_plan_changes_neither_clipping_nor_limits(tmp_path: Path) -> None:
    """Rows would be encoded without a clip, and limits on orders counted for another run."""
    plan = private_plan(listed_config(tmp_path))
    assert run_plan(plan, SecondPlan(tmp_path, plan), tmp_path / "run").error is None
    assert read_members(run_folder(tmp_path / "run", plan, 0)).isfinite().all()
    assert {entry.run for entry in read_journal(tmp_path / "north-kept")} == {plan.run}


def test_noise_is_forgotten_in_the_process_too(tmp_path: Path) -> None:
    plan = private_plan(listed_config(tmp_path))
    site = OneSite(plan, tmp_path, "north", shared_encoding(plan, tmp_path))
    site.reply(site.order())
    site.private.forget_key()
    with pytest.raises(RefusedError, match="is over at this site"):
        site.reply(site.order())


def test_a_false_deviation_does_not_show_whether_a_value_is_far_off(tmp_path: Path) -> None:
    """A site that stops because a number is too large for single precision would tell of it."""
    plan = private_plan(listed_config(tmp_path))
    honest = shared_encoding(plan, tmp_path)
    features = [
        replace(own, mean=50.0, deviation=1e-40) if isinstance(own, EncodedQuantity) else own
        for own in honest.features
    ]
    assert features != list(honest.features)
    site = OneSite(plan, tmp_path, "north", replace(honest, features=tuple(features)))
    assert site.encoded.data.examples.x.abs().max() <= 1.01e6
    assert torch.isfinite(site.reply(site.order(1e3))["step"]).all()


def test_weights_and_rates_that_overflow_are_refused_whatever_the_rows(tmp_path: Path) -> None:
    """Sums in single precision end at 3e38: with a weight of 1e37 that tells of a sum of 34."""
    run = PlannedRun("fedminmax", {"learning_rate": "0.1"}, 2)
    plan = private_plan(listed_config(tmp_path), run=run)
    site = OneSite(plan, tmp_path, "north", shared_encoding(plan, tmp_path))
    order = site.order()
    check_range(order)
    with pytest.raises(RefusedError, match=r"sent a weight above 1e\+12"):
        check_range(replace(order, weights=torch.tensor([0.5, 1e37], dtype=torch.float64)))
    layouts = Layouts(plan, site.encoded.encoding, Sizes())
    layouts.round(site.method, order)
    for rate in (1e-40, 1e37):
        method = replace(site.method, learning_rate=rate)
        with pytest.raises(RefusedError, match="cannot be computed exactly"):
            layouts.round(method, order)


def test_a_site_whose_training_diverges_sends_noise_around_nothing() -> None:
    """With unit = "site" a refusal would be about all that this site has."""
    for vector in (torch.tensor([math.nan, 1.0]), torch.tensor([math.inf, 1.0])):
        assert shortened(vector.double(), 1.0).tolist() == [0.0, 0.0]
    assert shortened(torch.tensor([3.0, 4.0]), 1.0).tolist() == pytest.approx([0.6, 0.8])


def test_runs_that_hide_sites_spend_what_rows_may_spend(tmp_path: Path) -> None:
    """One row more changes a site's sums by twice what the site itself may add to a total."""
    plan = private_plan(listed_config(tmp_path))
    settings = SiteSettings(tmp_path / "north.csv")
    line = planned_line(plan, settings)
    of_sites = replace(line, run="sites", unit=Unit.SITE.value)
    before, after = before_and_after([of_sites], line)
    half = Releases(line.releases, line.noise_multiplier / 2.0)
    assert before == epsilon_of([half], line.delta) > line.epsilon
    whole = Releases(line.releases, line.noise_multiplier)
    assert after == pytest.approx(epsilon_of([half, whole], line.delta))
    # Of a whole site, runs that hide rows promise nothing that could be added up.
    assert before_and_after([line], of_sites)[0] == 0.0


def test_a_run_does_not_go_on_with_the_same_file_read_in_another_way(tmp_path: Path) -> None:
    """It would answer the same order with new noise: one release more than is accounted for."""
    plan = private_plan(listed_config(tmp_path))
    site = OneSite(plan, tmp_path, "north", shared_encoding(plan, tmp_path))
    site.reply(site.order())
    settings = SiteSettings(tmp_path / "north.csv", format=FormatChanges(thousands="."))
    with pytest.raises(RefusedError, match="began here with another plan"):
        PrivateAnswers(plan, settings, site.folder).check(10)


def test_one_federation_has_no_noise_for_two_orders() -> None:
    """Two rates, the same seed: from the second round on models differ, and noise would not."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    rows = (x, (x[:, 0] > 0).long(), torch.arange(60) % 2)
    promise = Privacy(8.0, 1e-3, clip=0.6, rounds=3)
    federation = Simulation(nn.Linear(2, 2), brier_loss, [rows], privacy=promise)
    first = [own.members for own in train(federation, FedMinMax(0.1), rounds=3)]
    again = [own.members for own in train(federation, FedMinMax(0.1), rounds=3)]
    assert all(map(torch.equal, first, again))
    with pytest.raises(InputError, match="has answered another order for round 1"):
        list(train(federation, FedMinMax(0.2), rounds=3))
    list(train(federation, FedMinMax(0.2), rounds=3, seed=1))
