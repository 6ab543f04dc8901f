"""Measuring over sites: sums of the pooled held-out rows, by numpy; bad replies are named."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.core.examples import Examples
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.server.agree import agree
from fedminmax.network.server.measure import Measured, measure, read_measured, write_measured
from fedminmax.network.server.run import read_outcome, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import models_to_bytes
from fedminmax.network.wire.plan import NetworkPlan
from tests.network.network_problem import SITES, DirectTransport, plan_of
from tests.training.disturbed_simulation import SilentTransport

Table = NDArray[np.float64]
FEATURES, CLASSES = 4, 2
PARAMETERS = (FEATURES + 1) * CLASSES
SCORES = 14
# Two runs: a mixture of two models, and one model.
MEMBERS = [
    torch.from_numpy(np.random.default_rng(lines).normal(size=(lines, PARAMETERS)))
    for lines in (2, 1)
]


MIXTURE = PlannedRun("minimax-fair", {"fit_rounds": "1"}, 4)


def job(config: TableConfig) -> NetworkPlan:
    return plan_of(config, [MIXTURE, PlannedRun("fedavg", {}, 2)])


def measured_by(
    transport: DirectTransport, config: TableConfig, folder: Path
) -> tuple[Measured, dict[str, str]]:
    sites = PlainSites(job(config), transport)
    return measure(agree(job(config), sites, folder / "run"), sites, MEMBERS)


def held_out(config: TableConfig) -> dict[str, Examples]:
    return {part.owner: part.examples for part in load_federated_tables(config).test}


def probabilities(members: Tensor, x: Table) -> Table:
    """The mean over models of softmax(x W^T + b)."""
    found = []
    for theta in members.numpy():
        weight, bias = theta[: FEATURES * CLASSES].reshape(CLASSES, FEATURES), theta[-CLASSES:]
        outputs = np.exp(x @ weight.T + bias)
        found.append(outputs / outputs.sum(axis=1, keepdims=True))
    mean: Table = np.mean(found, axis=0)
    return mean


def scores_by_hand(members: Tensor, rows: Examples) -> Table:
    """Numerators, then denominators, of the metrics in their order."""
    p, sick = probabilities(members, rows.x.double().numpy()), rows.y.numpy() == 1
    one, chosen = np.ones(len(p)), p[:, 1] > p[:, 0]
    right = chosen == sick
    return np.stack(
        [
            *[right, 2 * (p[:, 1] - sick) ** 2, p.max(axis=1) - right, chosen],
            *[chosen & ~sick, ~chosen & sick, p[:, 1] - sick],
            *[one, one, one, one, ~sick, sick, one],
        ],
        axis=1,
    ).astype(np.float64)


def test_sums_over_sites_are_those_of_the_pooled_rows(config: TableConfig, tmp_path: Path) -> None:
    found, silent = measured_by(DirectTransport(tmp_path), config, tmp_path)
    assert silent == {}
    parts = held_out(config)
    table = np.concatenate(
        [
            np.concatenate([scores_by_hand(own, rows) for own in MEMBERS], axis=1)
            for rows in parts.values()
        ]
    )
    group = np.concatenate([rows.group.numpy() for rows in parts.values()])
    for number in range(2):
        own = table[group == number]
        assert found.sums.counts[number] == len(own) > 5
        np.testing.assert_allclose(found.sums.totals[number], own.sum(axis=0), atol=1e-9)
        np.testing.assert_allclose(found.sums.products[number], own.T @ own, atol=1e-9)
    expected = [np.bincount(parts[site].group, minlength=2).tolist() for site in SITES]
    assert found.rows.tolist() == expected


def test_what_was_measured_comes_back_as_it_was(config: TableConfig, tmp_path: Path) -> None:
    found, _ = measured_by(DirectTransport(tmp_path), config, tmp_path)
    write_measured(tmp_path, found)
    again = read_measured(tmp_path)
    for name in ("counts", "totals", "products"):
        assert torch.equal(getattr(again.sums, name), getattr(found.sums, name))
    assert torch.equal(again.rows, found.rows)


Vectors = dict[str, Tensor]


def spoiled(spoil: Callable[[Vectors], Vectors]) -> Callable[[bytes], object]:
    """Change vectors by name: counts [2], totals [2 * 28] and products [2 * 28 * 28]."""
    return lambda message: save({k: v.clone() for k, v in spoil(load(message)).items()})


BAD: dict[str, tuple[Callable[[bytes], object], str]] = {
    "NaN": (spoiled(lambda v: v | {"totals": v["totals"] * torch.nan}), "totals with NaN"),
    "infinity": (spoiled(lambda v: v | {"products": v["products"] / 0}), "products with NaN"),
    "short counts": (spoiled(lambda v: v | {"counts": v["counts"][:1]}), "counts with 1 numbers"),
    "long totals": (
        spoiled(lambda v: v | {"totals": v["totals"].repeat(2)}),
        "totals with 112 numbers, expected 56",
    ),
    "short products": (
        spoiled(lambda v: v | {"products": v["products"][:-1]}),
        "products with 1,567 numbers, expected 1,568",
    ),
    "single precision": (spoiled(lambda v: v | {"totals": v["totals"].float()}), "float32"),
    "another name": (spoiled(lambda v: v | {"rows": v["counts"]}), "another kind (rows)"),
    "negative counts": (spoiled(lambda v: v | {"counts": -v["counts"]}), "negative count"),
    "scores without rows": (
        spoiled(lambda v: v | {"counts": v["counts"] * torch.tensor([0, 1])}),
        "counts no rows of",
    ),
    "too small squares": (
        spoiled(lambda v: v | {"products": v["products"] * 0.1}),
        "squares are too small",
    ),
    "negative squares": (spoiled(lambda v: v | {"products": -v["products"]}), "too small"),
    # South has 45 rows, of which a fifth is held out.
    "invented rows": (
        spoiled(lambda v: v | {k: v[k] * 2**20 for k in ("counts", "totals", "products")}),
        "10 are possible",
    ),
    "counts near overflow": (
        spoiled(lambda v: v | {"counts": v["counts"] + 2**62}),
        "are possible",
    ),
    "scores above 1": (
        spoiled(lambda v: v | {"totals": v["totals"] * 9, "products": v["products"] * 81}),
        "too large for its rows",
    ),
    "far too long": (lambda message: message + b"\0" * 10**6, "bytes, at most"),
    "no message": (lambda _: b"hello", "not a message"),
    "no bytes": (lambda _: 3, "expected bytes"),
}


class SpoilingTransport(DirectTransport):
    """South's sums of scores are spoiled."""

    def __init__(self, folder: Path, spoil: Callable[[bytes], object]) -> None:
        super().__init__(folder)
        self._spoil = spoil

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        message = super().answer(site, endpoint, payload)
        if (site, endpoint) != ("south", "measure"):
            return message
        assert isinstance(message, bytes)
        return self._spoil(message)


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_reply_is_named_and_left_out(fault: str, config: TableConfig, tmp_path: Path) -> None:
    spoil, reason = BAD[fault]
    found, silent = measured_by(SpoilingTransport(tmp_path, spoil), config, tmp_path)
    assert list(silent) == ["south"]
    assert silent["south"].startswith("south ")
    assert reason in silent["south"]
    without, _ = measured_by(SilentTransport(tmp_path, "measure", ["south"]), config, tmp_path)
    assert torch.equal(found.sums.totals, without.sums.totals)
    assert torch.equal(found.rows, without.rows)
    assert found.rows[1].tolist() == [0, 0]
    assert found.rows.sum(dim=0).tolist() == found.sums.counts.tolist()


def test_rounding_is_no_fault(config: TableConfig, tmp_path: Path) -> None:
    """Sums in another order differ in their last digits."""
    noise = torch.from_numpy(1 + 1e-13 * np.random.default_rng(0).normal(size=2 * 28 * 28))
    spoil = spoiled(lambda v: v | {"products": v["products"] * noise})
    _, silent = measured_by(SpoilingTransport(tmp_path, spoil), config, tmp_path)
    assert silent == {}


def test_a_site_refuses_models_that_are_none(config: TableConfig, tmp_path: Path) -> None:
    transport = DirectTransport(tmp_path)
    site = transport.sites["north"]
    with pytest.raises(RefusedError, match="the server sent models before its encoding"):
        site.measure(models_to_bytes(MEMBERS))
    agree(job(config), PlainSites(job(config), transport), tmp_path / "run")
    site.measure(models_to_bytes(MEMBERS))
    one = MEMBERS[1]
    bad = [
        ("a model of another length", [one[:, 1:], one]),
        ("a model of another length", [one, one[:0]]),
        ("a model with NaN", [one, one * torch.nan]),
        ("a message of another kind", [one]),
        ("torch.float32", [one.float(), one]),
    ]
    for reason, members in bad:
        with pytest.raises(RefusedError, match=f"the server sent .*{reason}"):
            site.measure(models_to_bytes([table.clone() for table in members]))


def test_a_silent_site_is_named_in_the_outcome(config: TableConfig, tmp_path: Path) -> None:
    transport = SilentTransport(tmp_path, "measure", ["west"])
    outcome = run_plan(job(config), transport, tmp_path / "run")
    assert outcome.error is None
    assert outcome.unmeasured == {"west": "west is not connected"}
    assert read_outcome(tmp_path / "run") == outcome
    assert read_measured(tmp_path / "run").rows[2].tolist() == [0, 0]


def test_nobody_may_answer(config: TableConfig, tmp_path: Path) -> None:
    found, silent = measured_by(SilentTransport(tmp_path, "measure", SITES), config, tmp_path)
    assert sorted(silent) == sorted(SITES)
    assert not found.sums.counts.any()
    assert found.sums.products.shape == (2, 2 * SCORES, 2 * SCORES)


def test_a_site_hides_groups_with_few_held_out_rows(config: TableConfig, tmp_path: Path) -> None:
    rows = {
        site: own.group.bincount(minlength=2).tolist() for site, own in held_out(config).items()
    }
    small, large = sorted(rows["south"])
    assert 0 < small < large
    transport = DirectTransport(tmp_path)
    settings = SiteSettings(tmp_path / "south.csv", suppress_below=small + 1)
    transport.sites["south"] = Site("south", settings, tmp_path, SITES)
    found, silent = measured_by(transport, config, tmp_path)
    assert silent == {}
    told = [count if count == large else 0 for count in rows["south"]]
    assert found.rows.tolist() == [rows["north"], told, rows["west"]]
    hidden = rows["south"].index(small)
    assert found.sums.counts[hidden] == rows["north"][hidden] + rows["west"][hidden]
