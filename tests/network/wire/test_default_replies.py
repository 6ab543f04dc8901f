"""Local methods that do not say what an honest reply is: what is refused all the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.messages import Order, RoundKey, Sums
from fedminmax.losses import brier_loss
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMaxLocal
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.wire.checks import (
    StepLength,
    check_losses,
    check_reply,
    too_large,
)
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.testing import case_of
from fedminmax.testing.replies import check_the_network_takes_its_replies
from fedminmax.training.simulation import Simulation
from tests.network.masked_problem import FourSites, listed_config, masked_plan
from tests.network.network_problem import SITES, DirectTransport

METHODS = (FedAvg, FedMinMaxLocal, Ditto, FedMGDA)
MODEL = nn.Linear(3, 2).double()
SITE_DATA = (11, 25, 40)


@pytest.fixture(autouse=True)
def undeclared(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in {base for method in METHODS for base in method.__mro__ if "expected" in vars(base)}:
        monkeypatch.delattr(kind, "expected")


@pytest.mark.parametrize("kind", METHODS)
def test_honest_replies_pass(kind: Callable[..., Any]) -> None:
    """Sums of losses and steps, private state, or each update: the kinds of local work."""
    check_the_network_takes_its_replies(case_of(kind(learning_rate=0.3, epochs=3)))


@pytest.mark.parametrize("key", ["fedavg", "fedminmax-local"])
def test_masked_totals_lead_to_the_same_models(key: str, tmp_path: Path) -> None:
    """Nobody declares how large their steps can be, and they fit into masked numbers."""
    masked = masked_plan(listed_config(tmp_path), SITES, PlannedRun(key, {}, 2))
    plain = replace(masked, run="plain", secure_aggregation=None)
    assert run_plan(plain, DirectTransport(tmp_path), tmp_path / "plain").error is None
    assert run_plan(masked, FourSites(tmp_path), tmp_path / "masked").error is None
    found = [read_members(run_folder(tmp_path / run, plain, 0)) for run in ("plain", "masked")]
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def rows_of(data: int) -> tuple[Tensor, Tensor, Tensor]:
    rows, generator = SITE_DATA[data], torch.Generator().manual_seed(data)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 2, (rows,), generator=generator), torch.arange(rows) % 2


def sender(data: int) -> Sender:
    x, _, group = rows_of(data)
    limits = row_limits([MODEL], torch.zeros(8).double(), brier_loss, 0.0)
    lengths = RowLengths(float((x.square().sum() + len(x)).sqrt()))
    counts = torch.bincount(group)
    return Sender(data, counts, sites=len(SITE_DATA), limits=limits, lengths=lengths)


def asked() -> tuple[FedAvg, Order, list[Sums]]:
    """Return a method, its first order, and the sites' honest replies."""
    sites = [rows_of(number) for number in range(len(SITE_DATA))]
    federation = Simulation(MODEL, brier_loss, sites)
    method = FedAvg(0.5, 2, batch_size=10)
    state = method.init(federation.initial_parameters, federation.census)
    order = method.order(state, RoundKey(0, 1))
    return method, order, [federation.ask(method, order, [number]).total for number in range(3)]


def check(method: FedAvg, order: Order, data: int, reply: Sums) -> StepLength:
    check_losses(reply, sender(data), SITES[data])
    return check_reply(method, order, sender(data), reply, site=SITES[data])


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda honest: replace(honest, scale=2.0 * honest.scale), "sent a scale of"),
        (lambda honest: replace(honest, scale=0.0), "sent a scale of"),
        (lambda honest: replace(honest, curvature=1.0), "sent a curvature of"),
        (lambda honest: replace(honest, step=honest.step[1:]), "sent a step of 7"),
        (lambda honest: replace(honest, step=honest.step * torch.nan), "NaN or infinity"),
        (lambda honest: replace(honest, statistics=torch.ones(1).double()), "further numbers"),
        (lambda honest: replace(honest, group_count=honest.group_count // 2), "its census has"),
        (lambda honest: replace(honest, group_loss=honest.group_loss + 1e3), "sent a loss of"),
        (lambda honest: replace(honest, site_loss=torch.ones(3).double()), "losses of 3 sites"),
    ],
)
def test_another_shape_count_or_scale_is_refused(lie: Callable[[Sums], Sums], reason: str) -> None:
    method, order, replies = asked()
    told = lie(replies[1])
    with pytest.raises(RefusedError, match=reason):
        check(method, order, 1, told)


def test_a_step_far_longer_than_the_others_is_refused() -> None:
    method, order, replies = asked()
    replies[1] = replace(replies[1], step=replies[1].step * 1e6)
    steps = {
        name: check(method, order, number, replies[number]) for number, name in enumerate(SITES)
    }
    assert list(too_large(steps, SiteRules().max_step_ratio)) == [SITES[1]]
