"""Sites agree on bins from counts: the simulation's, to the bit, masked or not."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.additive.model import Pair
from fedminmax.core.errors import InputError
from fedminmax.data.tables.encoding import BinnedQuantity, Encoding, unsmoothed, with_smoothing
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.network.server.agree import agree
from fedminmax.network.server.masked_sites import MaskedSites, Sites
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import sections_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, plan_from_bytes, plan_to_bytes
from tests.network.masked_problem import FourSites, Killed, listed_config, masked_plan
from tests.network.network_problem import SITES, DirectTransport

ADDITIVE = 'kind = "additive"'
RUN = PlannedRun("fedminmax-fast", {}, 3)


def prepared(folder: Path) -> tuple[NetworkPlan, FederatedTables]:
    """Return a masked plan of an additive model, and what the simulation makes of its tables."""
    listed_config(folder)
    # Whole decades: cells that many people share are counted more closely.
    for site in SITES:
        table = pl.read_csv(folder / f"{site}.csv")
        table.with_columns((pl.col("age") / 10).round() * 10).write_csv(folder / f"{site}.csv")
    path = folder / "fedminmax.toml"
    path.write_text(path.read_text().replace('kind = "logistic"', ADDITIVE))
    config = read_config(path)
    return masked_plan(config, SITES, RUN), load_federated_tables(config)


def asked(plan: NetworkPlan, transport: DirectTransport, folder: Path) -> Sites:
    folder.mkdir(exist_ok=True)
    if plan.secure_aggregation is None:
        return PlainSites(plan, transport)
    return MaskedSites(plan, plan.secure_aggregation, transport, folder)


@pytest.mark.parametrize("masked", [False, True])
def test_the_network_has_the_simulations_edges_and_codes(masked: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    plan, tables = prepared(tmp_path)
    transport = FourSites(tmp_path) if masked else DirectTransport(tmp_path)
    plan = plan if masked else replace(plan, secure_aggregation=None)
    found = agree(plan, asked(plan, transport, tmp_path / "server"), tmp_path / "server")
    assert not found.refused
    assert unsmoothed(found.encoding) == tables.encoding
    age, *_ = found.encoding.features
    assert isinstance(age, BinnedQuantity)
    assert len(age.edges) >= 4
    for part in tables.with_pairs(found.encoding).train:
        encoded = transport.sites[part.owner]._encoded_site
        assert encoded is not None
        assert torch.equal(encoded.data.examples.x, part.examples.x)
        assert encoded.data.examples.x.dtype == part.examples.x.dtype
    questions = [question for question, _ in transport.calls if question == "count_cells"]
    assert len(questions) == 3


@pytest.mark.parametrize("call", [1, 3])
def test_a_server_that_is_killed_while_it_agrees_goes_on(call: int, tmp_path: Path) -> None:
    """Sites help with the same totals again: of the first grid, or of the second refinement."""
    plan, tables = prepared(tmp_path)
    killed = FourSites(tmp_path, killed_at=("count_cells", call))
    with pytest.raises(Killed):
        agree(plan, asked(plan, killed, tmp_path / "server"), tmp_path / "server")
    later = FourSites(tmp_path)
    found = agree(plan, asked(plan, later, tmp_path / "server"), tmp_path / "server")
    assert unsmoothed(found.encoding) == tables.encoding
    # A run that has its encoding asks for no counts.
    last = FourSites(tmp_path)
    again = agree(plan, asked(plan, last, tmp_path / "server"), tmp_path / "server")
    assert unsmoothed(again.encoding) == tables.encoding
    assert "count_cells" not in [question for question, _ in last.calls]


def test_a_site_that_is_away_while_cells_are_counted(tmp_path: Path) -> None:
    """Masked, a total without it would show its counts; unmasked, the others go on."""
    plan, tables = prepared(tmp_path)
    masked = FourSites(tmp_path, gone={("south", "count_cells"): 2})
    with pytest.raises(InputError, match="0 of 3 sites can take part"):
        agree(plan, asked(plan, masked, tmp_path / "server"), tmp_path / "server")
    back = FourSites(tmp_path)
    found = agree(plan, asked(plan, back, tmp_path / "server"), tmp_path / "server")
    assert unsmoothed(found.encoding) == tables.encoding
    plain = replace(plan, run="plain", secure_aggregation=None)
    alone = FourSites(tmp_path, gone={("south", "count_cells"): 2})
    found = agree(plain, PlainSites(plain, alone), tmp_path)
    assert list(found.refused) == ["south"]
    own = {part.owner: len(part.examples) for part in tables.train}
    assert found.encoding.records == own["north"] + own["west"]


class Lying(DirectTransport):
    """North counts one value more from a certain refinement on."""

    def __init__(self, folder: Path, stage: int) -> None:
        super().__init__(folder)
        self.stage = stage

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        """One site's answer."""
        answer = super().answer(site, endpoint, payload)
        if site == "north" and endpoint == "count_cells" and payload["stage"] == self.stage:
            assert isinstance(answer, bytes)
            counts = load(answer)["counts"]
            counts[0] += 1
            return sections_to_bytes({"counts": counts}, 0.0)
        return answer


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_site_whose_counts_do_not_add_up_is_refused(stage: int, tmp_path: Path) -> None:
    plan, _ = prepared(tmp_path)
    plan = replace(plan, secure_aggregation=None, sites=SITES)
    transport = Lying(tmp_path, stage)
    found = agree(plan, PlainSites(plan, transport), tmp_path)
    assert found.refused == {"north": "north sent counts of 'age' that do not add up; refused"}
    assert found.encoding.records == int(found.census.counts.sum())
    assert [part.sum().item() > 0 for part in found.census.counts] == [False, True, True]


Change = Callable[[list[dict[str, object]]], object]


def finer(grids: list[dict[str, object]]) -> None:
    grids[0]["cells"] = 4096


def outside(grids: list[dict[str, object]]) -> None:
    grids[0]["splits"] = [[10**9]]


def skipped(grids: list[dict[str, object]]) -> None:
    first = int(str(grids[0]["first"]))
    grids[0]["splits"] = [[first + 1], [64 * (first + 1)]]


def of_a_category(grids: list[dict[str, object]]) -> None:
    grids[0]["column"] = "ward"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (finer, "a grid of 'age' with no possible cells; refused"),
        (outside, "a grid of 'age' with splits of cells that it does not have; refused"),
        (skipped, "grids that do not refine those before; refused"),
        (of_a_category, "grids of other columns than its plan's; refused"),
        (list.clear, "grids of other columns than its plan's; refused"),
    ],
)
def test_a_site_takes_no_grid_that_could_single_out_rows(
    change: Change, reason: str, tmp_path: Path
) -> None:
    plan, _ = prepared(tmp_path)
    plan = replace(plan, secure_aggregation=None)
    north = DirectTransport(tmp_path).sites["north"]
    north.prepare(plan_to_bytes(plan))
    grids: list[dict[str, object]] = [
        {"column": "age", "level": -1, "first": 0, "cells": 1024, "splits": []}
    ]
    assert north.count_cells(json.dumps(grids).encode(), 0)
    change(grids)
    splits = grids[0]["splits"] if grids else []
    stage = len(splits) if isinstance(splits, list) else 0
    with pytest.raises(RefusedError, match=reason):
        north.count_cells(json.dumps(grids).encode(), stage)


def test_grids_belong_to_additive_models_and_before_the_encoding(tmp_path: Path) -> None:
    plan, tables = prepared(tmp_path)
    plan = replace(plan, secure_aggregation=None)
    north = DirectTransport(tmp_path).sites["north"]
    north.prepare(plan_to_bytes(plan))
    north.encode(encoding_as_json(tables.encoding).encode())
    with pytest.raises(RefusedError, match="sent grids, which its plan does not have now"):
        north.count_cells(b"[]", 0)


def test_the_encoding_comes_again_with_smoothing_and_pairs(tmp_path: Path) -> None:
    plan, tables = prepared(tmp_path)
    plan = replace(plan, secure_aggregation=None)
    north = DirectTransport(tmp_path).sites["north"]
    north.prepare(plan_to_bytes(plan))

    def send(encoding: Encoding, stage: int) -> None:
        north.encode(encoding_as_json(encoding).encode(), stage=stage)

    raw = tables.encoding
    sizes = [block.size for block in raw.blocks]
    pair = Pair(0, 1, tuple(n % 3 for n in range(sizes[0])), tuple(range(sizes[1])))
    full = with_smoothing(raw, [1.0, 2.0, 3.0], [pair])
    send(raw, 0)
    with pytest.raises(RefusedError, match="asks for stage 0 of 'encode', not 1"):
        send(full, 0)
    age, ward = full.features
    assert isinstance(age, BinnedQuantity)
    other = replace(full, features=(replace(age, edges=age.edges[1:], fallback=0), ward), pairs=())
    with pytest.raises(RefusedError, match="sent a second encoding"):
        send(other, 1)
    send(full, 1)
    encoded = north._encoded_site
    assert encoded is not None
    assert encoded.data.examples.x.shape[1] == 3
    with pytest.raises(RefusedError, match="sent a second encoding"):
        send(raw, 0)
    # A server that goes on later sends the full one alone.
    again = DirectTransport(tmp_path).sites["north"]
    again.prepare(plan_to_bytes(plan))
    assert again.encode(encoding_as_json(full).encode(), stage=1)


def test_an_encoding_for_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    plan, _ = prepared(tmp_path)
    plan = replace(plan, secure_aggregation=None)
    path = tmp_path / "fedminmax.toml"
    path.write_text(path.read_text().replace(ADDITIVE, 'kind = "logistic"'))
    linear = load_federated_tables(read_config(path)).encoding
    north = DirectTransport(tmp_path).sites["north"]
    north.prepare(plan_to_bytes(plan))
    with pytest.raises(RefusedError, match="an encoding for another kind of model"):
        north.encode(encoding_as_json(linear).encode())


def test_a_plan_without_a_ridge_is_refused(tmp_path: Path) -> None:
    plan, _ = prepared(tmp_path)
    bare = replace(plan, model=replace(plan.model, ridge=0.0))
    with pytest.raises(RefusedError, match="an additive model without a ridge"):
        plan_from_bytes(plan_to_bytes(bare), "the server")
