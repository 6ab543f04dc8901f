"""Files and commands with names as earlier versions spelled them, with hyphens, still work."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedminmax
from fedminmax.cli.main import build_parser
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census
from fedminmax.core.old_names import OLD_NAMES
from fedminmax.data.tables.config import TableConfig, read_config
from fedminmax.federation.checkpoint import DIGEST_BYTES
from fedminmax.federation.wire.plan import NetworkPlan, PlannedRun, digest_of, plan_to_bytes
from fedminmax.federation.wire.plan_checks import plan_from_bytes
from fedminmax.runs.results import finished_results
from tests.cli import hospitals
from tests.federation.network_problem import CONFIG, plan_of, write_tables

MODEL = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-5'
GROUPS = 'columns = ["sex"]\nmissing = "own_group"\nunlisted = "leave_out"'
METHOD = 'name = "fedminmax-fast"\nrounds = 3\ngap = 0.0\nbaseline = "none"'
# What the version before names had one spelling made of the plan below.
FORMER_DIGEST = "a004768e16c16266bf62d01e983c7fee"


def formerly(content: bytes) -> bytes:
    for old, new in OLD_NAMES.items():
        content = content.replace(new.encode(), old.encode())
    return content


def read_text(folder: Path, text: str) -> TableConfig:
    path = write_tables(folder)
    path.write_text(text, encoding="utf-8")
    return replace(read_config(path), text="")


def test_a_configuration_with_hyphens_says_the_same(tmp_path: Path) -> None:
    iterate = 'name = "fedminmax"\niterate = "tail_average"'
    text = CONFIG.replace('kind = "logistic"', MODEL).replace('columns = ["sex"]', GROUPS)
    text = text.replace('name = "fedminmax"', iterate)
    assert formerly(text.encode()) != text.encode()
    config = read_text(tmp_path, text)
    assert read_text(tmp_path, formerly(text.encode()).decode()) == config
    assert (config.model.loss, config.iterate) == ("cross_entropy", Iterate.TAIL_AVERAGE)


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    text = CONFIG.replace('kind = "logistic"', MODEL).replace('columns = ["sex"]', GROUPS)
    run = PlannedRun(
        "fedminmax-fast", {"gap": "1e-5"}, 7, participation=0.5, iterate=Iterate.TAIL_AVERAGE
    )
    return plan_of(read_text(tmp_path, text), [run])


def test_a_plan_of_an_earlier_server_is_read(plan: NetworkPlan) -> None:
    # Iterates were never spelled with hyphens in plans.
    message = formerly(plan_to_bytes(plan)).replace(b"tail-average", b"tail_average")
    assert b"cross-entropy" in message
    assert b"own-group" in message
    assert plan_from_bytes(message, "the server") == plan


def test_sites_know_a_plan_that_they_agreed_to_with_an_earlier_version(plan: NetworkPlan) -> None:
    assert digest_of(plan) == FORMER_DIGEST
    other = replace(plan, model=replace(plan.model, loss="brier"))
    assert digest_of(other) != FORMER_DIGEST


def test_a_run_that_an_earlier_version_began_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals.write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = hospitals.write_config(tmp_path, model=MODEL, method=METHOD)
    text = config.read_text().replace('columns = ["sex"]', GROUPS)
    config.write_text(text)
    whole = fedminmax.train_tables(config, folder="whole")
    fedminmax.train_tables(config, folder="begun", rounds=2)
    for path in Path("begun").iterdir():
        rewrite_formerly(path)
    assert b'loss": "cross-entropy"' in Path("begun/model.safetensors").read_bytes()
    assert b'loss": "cross-entropy"' in Path("begun/config.json").read_bytes()
    assert fedminmax.load_model("begun").loss == "cross_entropy"
    assert finished_results(Path("begun")).loss == "cross_entropy"
    gone_on = fedminmax.train_tables(config, folder="begun")
    assert gone_on.results.method.rounds == 3
    assert hospitals.results_of(Path("begun")) == hospitals.results_of(Path("whole"))
    models = [Path(name, "model.safetensors").read_bytes() for name in ("begun", "whole")]
    assert models[0] == models[1]
    assert whole.results.loss == "cross_entropy"


def rewrite_formerly(path: Path) -> None:
    """Make a file what it would be if an earlier version had written it."""
    content = path.read_bytes()
    if path.suffix != ".bin":
        path.write_bytes(formerly(content))
        return
    flat = torch.load(io.BytesIO(content[DIGEST_BYTES:]), weights_only=True)
    assert flat["state.structure.loss"] == "cross_entropy"
    buffer = io.BytesIO()
    torch.save(flat | {"state.structure.loss": "cross-entropy"}, buffer)
    path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["compare", "adult", "--loss", "cross-entropy"], "loss"),
        (["reproduce", "synthetic", "--folds-by", "cross-validation"], "folds_by"),
    ],
)
def test_commands_take_both_and_mean_one(words: list[str], name: str) -> None:
    parser = build_parser()
    now = [*words[:-1], OLD_NAMES[words[-1]]]
    meant = [getattr(parser.parse_args(own), name) for own in (words, now)]
    assert meant == [OLD_NAMES[words[-1]]] * 2


def test_advice_takes_both() -> None:
    census = Census(torch.tensor([[30, 20], [10, 40]]))
    old, new = (fedminmax.advise(census, loss=name) for name in ("squared-error", "squared_error"))
    assert old == new
