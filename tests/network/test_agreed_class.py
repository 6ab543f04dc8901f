"""Sites choose smoothing and pairs from sums, and then train: as the simulation, masked or not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.config.planned_runs import RATE, SAFE, PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.additive.model import AdditiveModel, Pair
from fedminmax.core.examples import concatenate
from fedminmax.core.workspace import model_with
from fedminmax.data.tables import bins
from fedminmax.data.tables.encoding import with_directions
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.exports.effects import departures_of
from fedminmax.metrics.code_sums import code_shape, code_sums
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.measure import read_measured
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.site.policy import check_encoding
from fedminmax.network.wire.codec import RefusedError, record_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, Precision, task_of
from fedminmax.runs.plan import federate, with_class
from fedminmax.training.train import train
from tests.network.masked_problem import FourSites, Killed, masked_plan
from tests.network.network_problem import SITES, DirectTransport

FAST = PlannedRun("fedminmax-fast", {}, 12)
CONFIG = """
[data]
target = "ill"
{target}
held_out = 0.2
seed = 3
[data.sites]
north = "north.csv"
south = "south.csv"
west = "west.csv"
[groups]
columns = ["sex"]
values = {{ sex = ["Female", "Male"] }}
minimum_size = 0
[features.age]
kind = "numeric"
[features.ward]
kind = "category"
categories = ["a", "b", "c"]
[features.dose]
kind = "numeric"
[model]
kind = "additive"
"""


def write_sites(folder: Path, *, regression: bool = False) -> TableConfig:
    """Write tables with a curve, missing values and two columns that act together."""
    for number, site in enumerate(SITES):
        generator, rows = np.random.default_rng(number), 300
        age = generator.integers(20, 90, rows)
        dose = generator.integers(0, 4, rows)
        ward = generator.choice(["a", "b", "c"], rows)
        female = generator.random(rows) < 0.3 + 0.2 * number
        score = np.sin(age / 12) * (1.5 - female) + 1.5 * ((dose > 1) ^ (ward == "a")) - 0.8
        noise = generator.logistic(size=rows)
        outcome = np.round(score + noise, 3) if regression else np.where(score > noise, "yes", "no")
        columns = zip(age, female, ward, dose, outcome, strict=True)
        lines = [
            f"{'' if line % 17 == 0 else a},{'Female' if w else 'Male'},{d},{q},{i}"
            for line, (a, w, d, q, i) in enumerate(columns)
        ]
        text = "\n".join(["age,sex,ward,dose,ill", *lines]) + "\n"
        (folder / f"{site}.csv").write_text(text, encoding="utf-8")
    target = 'task = "regression"' if regression else 'classes = ["no", "yes"]'
    (folder / "fedminmax.toml").write_text(CONFIG.format(target=target), encoding="utf-8")
    return read_config(folder / "fedminmax.toml")


def plan_of_sites(config: TableConfig, *runs: PlannedRun, masked: bool) -> NetworkPlan:
    # As in a real run; additive models are in double precision all the same.
    plan = replace(masked_plan(config, SITES, *runs), precision=Precision.FLOAT32)
    return plan if masked else replace(plan, secure_aggregation=None)


def simulated(config: TableConfig, run: PlannedRun) -> tuple[FederatedTables, Tensor]:
    tables, prepared = with_class(config, load_federated_tables(config))
    federation = federate(config, tables, "cpu", prepared=prepared)
    method = run.build()
    *_, last = train(federation, method, rounds=run.rounds, seed=config.seed)
    return tables, last.members


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("nodes", [False, True])
def test_the_network_has_the_simulations_model(
    nodes: bool,  # noqa: FBT001 - the case
    masked: bool,  # noqa: FBT001 - the case
    regression: bool,  # noqa: FBT001 - the case
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if nodes:
        # As if there were many columns: each has few effects.
        monkeypatch.setattr(bins, "MIN_MAX_CODES", 20)
        monkeypatch.setattr(bins, "RECORDS_PER_CODE", 10**6)
    config = write_sites(tmp_path, regression=regression)
    tables, members = simulated(config, FAST)
    plan = plan_of_sites(config, FAST, masked=masked)
    transport = FourSites(tmp_path) if masked else DirectTransport(tmp_path)
    outcome = run_plan(plan, transport, tmp_path / "server")
    assert outcome.error is None
    assert not outcome.unmeasured
    agreed = read_agreement(tmp_path / "server" / AGREEMENT_FILE)
    assert agreed is not None
    assert agreed.encoding == tables.encoding
    assert agreed.encoding.stage == 1
    assert agreed.encoding.pairs
    assert any(block.nodes for block in agreed.encoding.blocks) == nodes
    found = read_members(run_folder(tmp_path / "server", plan, 0))
    task = task_of(plan, agreed.encoding)
    outputs = [
        model_with(task, parameters[0])(part.examples.x)
        for parameters in (found, members)
        for part in tables.train
    ]
    half = len(tables.train)
    assert torch.allclose(torch.cat(outputs[:half]), torch.cat(outputs[half:]), atol=1e-9)
    # What training records of each group ask for is a sum over sites, too.
    shape = code_shape(tables.encoding, 1)
    rows = concatenate([part.examples for part in tables.train])
    pooled = code_sums([model_with(task, members[0])], rows, shape)
    summed = read_measured(tmp_path / "server").codes
    assert torch.equal(summed.code_counts, pooled.code_counts)
    assert torch.allclose(summed.code_slopes, pooled.code_slopes, atol=1e-6)
    assert torch.allclose(summed.code_bends, pooled.code_bends, atol=1e-6)
    ours, theirs = (departures_of(tables.encoding, own) for own in (summed, pooled))
    assert ours is not None
    assert theirs is not None
    # Sine curves of age are steeper for men.
    assert {"age"} <= {own.column for own in ours[0]}
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert (one.column, one.group, one.cells, one.records) == (
            other.column,
            other.group,
            other.cells,
            other.records,
        )
        assert one.shifts == pytest.approx(other.shifts, abs=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_effects_go_only_up_between_sites_too(
    masked: bool,  # noqa: FBT001 - the case
    tmp_path: Path,
) -> None:
    config = write_sites(tmp_path)
    config = replace(config, model=replace(config.model, monotone={"age": "up"}))
    tables, members = simulated(config, FAST)
    plan = plan_of_sites(config, FAST, masked=masked)
    transport = FourSites(tmp_path) if masked else DirectTransport(tmp_path)
    assert run_plan(plan, transport, tmp_path / "server").error is None
    agreed = read_agreement(tmp_path / "server" / AGREEMENT_FILE)
    assert agreed is not None
    assert agreed.encoding == tables.encoding
    task = task_of(plan, agreed.encoding)
    found = read_members(run_folder(tmp_path / "server", plan, 0))
    models = [model_with(task, parameters[0]) for parameters in (found, members)]
    ours, theirs = (torch.cat([m(part.examples.x) for part in tables.train]) for m in models)
    assert torch.allclose(ours, theirs, atol=1e-9)
    bins = agreed.encoding.blocks[0].ordered
    assert isinstance(models[0], AdditiveModel)
    effects = models[0].effects.detach()
    assert float((effects[1] - effects[0])[:bins].diff().min()) >= 0.0
    # A site that agreed to this refuses an encoding without it.
    other = with_directions(agreed.encoding, {})
    with pytest.raises(RefusedError, match="monotone"):
        check_encoding(other, plan, None)


def test_methods_with_steps_get_a_rate_that_is_safe(tmp_path: Path) -> None:
    config = write_sites(tmp_path)
    run = PlannedRun("fedminmax", {RATE: SAFE}, 3)
    plan = plan_of_sites(config, run, masked=False)
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "server")
    assert outcome.error is None
    agreed = read_agreement(tmp_path / "server" / AGREEMENT_FILE)
    assert agreed is not None
    blocks = len(agreed.encoding.blocks)
    assert agreed.learning_rate is not None
    assert float(agreed.learning_rate) <= 1.0 / (0.5 * (blocks + 1))


@pytest.mark.parametrize("killed_at", [("smooth", 7), ("answer", 2)])
def test_a_killed_server_goes_on_to_the_same_model(
    killed_at: tuple[str, int], tmp_path: Path
) -> None:
    config = write_sites(tmp_path)
    plan = plan_of_sites(config, FAST, masked=True)
    whole = tmp_path / "whole"
    assert run_plan(plan, FourSites(tmp_path), whole).error is None
    again = tmp_path / "again"
    again.mkdir()
    for site in SITES:
        (again / f"{site}.csv").write_text((tmp_path / f"{site}.csv").read_text())
    with pytest.raises(Killed):
        run_plan(plan, FourSites(again, killed_at=killed_at), again / "server")
    assert run_plan(plan, FourSites(again), again / "server").error is None
    expected = read_members(run_folder(whole, plan, 0))
    assert torch.equal(read_members(run_folder(again / "server", plan, 0)), expected)


def test_a_site_refuses_questions_that_the_plan_does_not_have(tmp_path: Path) -> None:
    config = write_sites(tmp_path)
    plan = plan_of_sites(config, FAST, masked=False)
    transport = DirectTransport(tmp_path)
    assert run_plan(plan, transport, tmp_path / "server").error is None
    site = transport.sites["north"]
    with pytest.raises(RefusedError, match="does not have now"):
        site.smooth(b"", record_to_bytes(()))


@pytest.mark.parametrize(
    "pair",
    [
        Pair(0, 5, (0,), (0,)),
        Pair(1, 0, (0,), (0,)),
        Pair(0, 1, (0, 1), (0, 1)),
        Pair(1, 2, (0, 1, 2, 99), (0, 1, 2, 3)),
    ],
)
def test_a_site_refuses_pairs_of_other_columns_or_finer_cells(pair: Pair, tmp_path: Path) -> None:
    config = write_sites(tmp_path)
    plan = plan_of_sites(config, FAST, masked=False)

    class Asking(DirectTransport):
        """Sends its own pairs with the first question."""

        def answer(self, site: str, endpoint: str, payload):  # type: ignore[no-untyped-def]
            if endpoint == "smooth":
                payload = {**payload, "pairs": record_to_bytes((pair,))}
            return super().answer(site, endpoint, payload)

    outcome = run_plan(plan, Asking(tmp_path), tmp_path / "server")
    assert outcome.error is not None
    assert "a pair of other columns or cells" in outcome.error


@pytest.mark.parametrize("classes", [2, 0])
@pytest.mark.parametrize("masked", [False, True])
def test_a_network_has_the_same_effects_as_inputs(
    masked: bool,  # noqa: FBT001 - the case
    classes: int,
    tmp_path: Path,
) -> None:
    config = write_sites(tmp_path, regression=not classes)
    model = replace(config.model, kind="mlp", hidden=(8, 8), ridge=0.0, inputs="effects", pairs=2)
    config = replace(config, model=model)
    run = PlannedRun("fedminmax-fast", {"linear_start": "true"}, 12)
    tables, members = simulated(config, run)
    plan = replace(plan_of_sites(config, run, masked=masked), precision=Precision.FLOAT64)
    transport = FourSites(tmp_path) if masked else DirectTransport(tmp_path)
    outcome = run_plan(plan, transport, tmp_path / "server")
    assert outcome.error is None
    agreed = read_agreement(tmp_path / "server" / AGREEMENT_FILE)
    assert agreed is not None
    assert agreed.encoding == tables.encoding
    assert agreed.encoding.inputs
    found = read_members(run_folder(tmp_path / "server", plan, 0))
    task = task_of(plan, agreed.encoding)
    x = torch.cat([part.examples.x for part in tables.train]).double()
    one, other = (model_with(task, own[0].double())(x) for own in (found, members))
    assert torch.allclose(one, other, atol=1e-4)
