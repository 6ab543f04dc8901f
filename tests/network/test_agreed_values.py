"""Categories without a list over the network: the same list and models, and no rare value named.

Over the network, too, sites that code the same thing differently are refused with both lists.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.data.tables.agreed_values import BUCKETS, MINIMUM_ROWS, TABLES
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agree_parts import VALUES_FILE
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.journal import read_journal
from fedminmax.network.site.policy import read_own_rows
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.calls import Endpoint
from fedminmax.network.wire.codec import RefusedError, record_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from fedminmax.network.wire.values import totals_to_bytes
from tests.cli.kits import check, create
from tests.complaints import complaint_of
from tests.network.masked_problem import FourSites, Killed, listed_config, masked_plan
from tests.network.network_problem import (
    AT_ONCE,
    CONFIG,
    SITES,
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

FEDMINMAX = PlannedRun("fedminmax", {}, 3)
COMMON = ("101", "2034", "377", "9")


def open_config(folder: Path) -> TableConfig:
    """Wards are codes without a list: some are common, and some at one site alone or rare."""
    listed_config(folder)
    for place, name in enumerate(("east", *SITES)):
        path, generator = folder / f"{name}.csv", np.random.default_rng(place)
        header, *lines = path.read_text().splitlines()
        codes = generator.choice([*COMMON, f"55{place}"], len(lines), p=[0.3, 0.3, 0.2, 0.17, 0.03])
        # The same number in the notation of another program.
        written = [f"{code}.0" if place == 2 else code for code in codes]
        cells = [line.split(",") for line in lines]
        changed = [
            ",".join([*own[:2], ward, own[3]]) for own, ward in zip(cells, written, strict=True)
        ]
        path.write_text("\n".join([header, *changed]) + "\n")
    path = folder / "fedminmax.toml"
    path.write_text(path.read_text().replace('categories = ["a", "b", "c"]\n', ""))
    return read_config(path)


def plans(folder: Path) -> tuple[NetworkPlan, NetworkPlan]:
    """The same job with masks and without."""
    masked = masked_plan(open_config(folder), SITES, FEDMINMAX)
    return masked, replace(masked, run="plain", secure_aggregation=None)


def test_masked_plain_and_simulated_runs_agree_on_list_and_model(tmp_path: Path) -> None:
    masked, plain = plans(tmp_path)
    assert run_plan(masked, FourSites(tmp_path), tmp_path / "masked").error is None
    assert run_plan(plain, DirectTransport(tmp_path), tmp_path / "plain").error is None
    pooled = load_federated_tables(read_config(tmp_path / "fedminmax.toml")).encoding
    assert pooled.schema.features[1].categories == COMMON
    models = [simulated_members(tmp_path, plain, 0, fused=False)]
    for name in ("masked", "plain"):
        agreed = read_agreement(tmp_path / name / AGREEMENT_FILE)
        assert agreed is not None
        assert agreed.encoding == pooled
        models.append(read_members(run_folder(tmp_path / name, plain, 0)))
    for model in models[1:]:
        torch.testing.assert_close(model, models[0], rtol=1e-9, atol=1e-9)


def test_rare_values_never_leave_a_site(tmp_path: Path) -> None:
    masked, _ = plans(tmp_path)
    transport = FourSites(tmp_path)
    assert run_plan(masked, transport, tmp_path / "masked").error is None
    assert "551" in (tmp_path / "north.csv").read_text()
    sent = [(question, own) for _, question, own in transport.sent if isinstance(own, bytes)]
    named = [json.loads(own)["ward"] for question, own in sent if question == "name_values"]
    assert {value for own in named for value in own} == {*COMMON}
    assert b'"551"' not in b"".join(own for _, own in sent)


@pytest.mark.parametrize(
    ("question", "number"),
    [("name_values", 1), ("take_values", 1), ("unmask", 2), ("summarise", 1), ("answer", 2)],
)
def test_a_killed_server_goes_on_with_the_same_list(
    question: str, number: int, tmp_path: Path
) -> None:
    plan, _ = plans(tmp_path)
    other = replace(plan, run="undisturbed")
    assert run_plan(other, FourSites(tmp_path), tmp_path / "undisturbed").error is None
    with suppress(Killed):
        run_plan(plan, FourSites(tmp_path, killed_at=(question, number)), tmp_path / "run")
        pytest.fail("nobody was killed")
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None
    members = [read_members(run_folder(tmp_path / n, plan, 0)) for n in ("run", "undisturbed")]
    assert torch.equal(*members)


def test_a_site_that_goes_away_before_the_list_stops_the_run_until_it_is_back(
    tmp_path: Path,
) -> None:
    plan, _ = plans(tmp_path)
    away = FourSites(tmp_path, gone={("south", "name_values"): 1})
    error = run_plan(plan, away, tmp_path / "run").error
    assert error is not None
    assert "south did not answer in time" in error
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None


def test_the_journal_has_what_was_asked(tmp_path: Path) -> None:
    plan, _ = plans(tmp_path)
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None
    endpoints = {entry.endpoint for entry in read_journal(tmp_path / "north-kept")}
    assert endpoints >= {Endpoint.COUNT_VALUES, Endpoint.NAME_VALUES, Endpoint.TAKE_VALUES}


class Hostile:
    """A server that has sent its plan to the north, and asks what it likes."""

    def __init__(self, folder: Path) -> None:
        _, plain = plans(folder)
        self.site = DirectTransport(folder).sites["north"]
        assert self.site.prepare(plan_to_bytes(plain)) == b""
        counts = self.site.count_values()
        self.own = load(counts)["counts"]


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


def test_a_site_names_nothing_in_a_closed_bucket(hostile: Hostile) -> None:
    hashed = hashlib.sha256(b"101").digest()
    places = [int.from_bytes(hashed[8 * n : 8 * n + 8]) % BUCKETS for n in range(TABLES)]
    totals = 3 * hostile.own.reshape(TABLES, BUCKETS)
    totals[range(TABLES), places] = MINIMUM_ROWS - 1
    names = json.loads(hostile.site.name_values(totals_to_bytes(totals.flatten())))
    assert names == {"ward": [code for code in COMMON if code != "101"]}


def forged(own: Tensor, kind: str) -> Tensor:
    tables = own.reshape(TABLES, BUCKETS).clone()
    if kind == "all open":
        tables[:] = MINIMUM_ROWS
    elif kind == "one table":
        tables[0] = MINIMUM_ROWS
    elif kind == "negative":
        tables[:, 0] = -1
    else:
        tables[:, 0] = 2**60
    return tables.flatten()


@pytest.mark.parametrize("kind", ["all open", "one table", "negative", "too many rows"])
def test_impossible_totals_are_refused(hostile: Hostile, kind: str) -> None:
    with pytest.raises(RefusedError):
        hostile.site.name_values(totals_to_bytes(forged(hostile.own, kind)))


def test_a_list_with_a_value_in_a_closed_bucket_is_refused(hostile: Hostile) -> None:
    totals = totals_to_bytes(3 * hostile.own)
    values = record_to_bytes({"ward": ("101", "551")})
    said = complaint_of(lambda: hostile.site.take_values(totals, values))
    assert said == "the server names a value of 'ward' that is too rare; refused"


@pytest.mark.parametrize(
    "values", [{"ward": ("101", "101")}, {"ward": ("377", "101")}, {"age": ("1",)}, {}]
)
def test_lists_that_are_none_are_refused(
    hostile: Hostile, values: dict[str, tuple[str, ...]]
) -> None:
    with pytest.raises(RefusedError):
        hostile.site.take_values(totals_to_bytes(3 * hostile.own), record_to_bytes(values))


def test_nothing_else_is_answered_before_the_lists_and_no_values_after(hostile: Hostile) -> None:
    said = complaint_of(lambda: hostile.site.encode(b"{}"))
    assert said == "the server sent an encoding before the lists of categories"
    totals = totals_to_bytes(3 * hostile.own)
    assert hostile.site.take_values(totals, record_to_bytes({"ward": ("101",)}))
    for again in (
        lambda: hostile.site.name_values(totals),
        lambda: hostile.site.take_values(totals, record_to_bytes({"ward": ("377",)})),
    ):
        assert complaint_of(again).endswith("after the lists of categories")


def test_a_resumed_server_tells_the_list_that_it_kept(tmp_path: Path) -> None:
    _, plain = plans(tmp_path)
    assert run_plan(plain, DirectTransport(tmp_path), tmp_path / "run").error is None
    transport = DirectTransport(tmp_path)
    assert run_plan(plain, transport, tmp_path / "run").error is None
    questions = [question for question, _ in transport.calls]
    assert "name_values" not in questions
    assert "take_values" in questions
    assert (tmp_path / "run" / VALUES_FILE).exists()


LISTED = '[groups.values]\nsex = ["F", "Female", "M", "Male"]\n'
MAPPED = '[groups.map.sex]\nF = "Female"\nM = "Male"\n'


def write_other_codes(folder: Path, more: str) -> Path:
    """Let the north write F and M, and add these sections to the configuration."""
    path = write_tables(folder)
    north = folder / "north.csv"
    text = north.read_text().replace(",Female,", ",F,").replace(",Male,", ",M,")
    north.write_text(text)
    path.write_text(CONFIG.replace("[features.age]", f"{more}[features.age]"))
    return path


def test_a_server_that_sees_each_site_compares_them(tmp_path: Path) -> None:
    config = read_config(write_other_codes(tmp_path, ""))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
    said = complaint_of(
        lambda: agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run")
    )
    assert "'north' has 'F', 'M'; 'south' and 'west' have 'Female', 'Male'" in said
    assert '[groups.map.sex] with F = "Female", M = "Male"' in said


def test_a_site_compares_its_own_rows_with_what_is_listed(tmp_path: Path) -> None:
    """It needs nobody else for that, so this also holds where all sums are masked."""
    config = read_config(write_other_codes(tmp_path, LISTED))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
    settings = SiteSettings(tmp_path / "north.csv")
    said = complaint_of(lambda: read_own_rows(plan, settings, "north"))
    assert "column 'sex' has 'F', 'M' here, and the configuration also lists 'Female'" in said


def test_a_check_before_the_run_refuses_until_the_codes_are_mapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    assert check(tmp_path, config=write_other_codes(tmp_path, LISTED)) == 2
    assert '[groups.map.sex] with F = "Female", M = "Male"' in capsys.readouterr().err
    assert check(tmp_path, config=write_other_codes(tmp_path, LISTED + MAPPED)) == 0
    assert "Female" in capsys.readouterr().out


def test_mapped_codes_give_the_same_census(tmp_path: Path) -> None:
    rows = []
    for name, more in (("same", ""), ("mapped", LISTED + MAPPED)):
        folder = tmp_path / name
        folder.mkdir()
        path = write_other_codes(folder, more) if more else write_tables(folder)
        plan = plan_of(read_config(path), [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
        agreed = agree(plan, PlainSites(plan, DirectTransport(folder)), folder / "run")
        rows.append(agreed.census.counts.tolist())
    assert rows[0] == rows[1]
