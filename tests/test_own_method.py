"""The worked example of docs/own_method.md, in a package of its own: train, compare, a network.

Its multiplicative weights are computed here once more, from the paper's formula.
"""

import re
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.methods.catalogue import BUILT_IN, CARDS, unusable_methods
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import (
    NetworkPlan,
    digest_of,
    plan_from_bytes,
    plan_of_config,
    plan_to_bytes,
)
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.train import train
from tests.cli.command import complaint, fedminmax
from tests.network.network_problem import (
    SITES,
    DirectTransport,
    simulated_members,
    write_tables,
)
from tests.own_package import CODE, PAGE, install
from tests.problems import softmax_problem, to_numpy

BROKEN = "import no_such_module\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that asks for the method."""
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace('"fedminmax"', '"group-dro"'))
    return path


def plan_for(config: Path) -> NetworkPlan:
    return plan_of_config(read_config(config), "test", SITES, SiteRules(round_timeout=0.0))


def test_the_example_is_short_and_its_entry_point_names_its_class() -> None:
    assert len(CODE.splitlines()) < 40
    project = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["project"]
    assert project["entry-points"]["fedminmax.methods"] == {"group-dro": "group_dro:GroupDRO"}


def test_its_weights_are_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """q_a <- q_a exp(eta r_a) / sum, and theta moves along sum_a q_a grad r_a."""
    install(tmp_path, monkeypatch)
    problem = softmax_problem([[4, 1], [1, 5]], classes=2)
    method = CARDS["group-dro"].build({}, {"adversary_rate": "0.7"})
    shares = np.array([5, 6]) / 11
    for done in train(problem.federation(), method, rounds=3):
        raised = shares * np.exp(0.7 * to_numpy(done.risks))
        shares = raised / raised.sum()
        np.testing.assert_allclose(to_numpy(done.weights), shares, rtol=1e-12)


def test_its_options_may_be_annotated_in_any_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = CODE.replace("adversary_rate: float = 0.01", "adversary_rate: Optional[float] = None")
    imports = "from __future__ import annotations\nfrom typing import Optional\n"
    install(tmp_path, monkeypatch, code=imports + old)
    for word in ("0.5", "none"):
        made = CARDS["group-dro"].build({}, {"adversary_rate": word})
        assert f"adversary_rate={word.title()}" in repr(made)


def test_train_knows_it(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    done = fedminmax("train", config.name, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Group DRO" in (tmp_path / "run" / "model_card.md").read_text()
    assert '"weights_over": "groups"' in (tmp_path / "run" / "rounds.jsonl").read_text()


def test_compare_and_the_list_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    quick = ["--rows", "200", "--rounds", "3", "--sites", "4", "--settings", "ESG"]
    done = fedminmax("compare", "synthetic", "--methods", "group-dro", *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "group-dro" in done.stdout
    listed = fedminmax("methods", cwd=tmp_path)
    assert "group-dro" in listed.stdout
    assert listed.stderr == ""
    assert "Sagawa et al., ICLR 2020" in fedminmax("methods", "group-dro", cwd=tmp_path).stdout


def test_sites_with_the_same_package_train_as_the_simulation_does(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    plan = plan_for(config)
    assert [own.package for own in plan.packages] == ["group-dro"]
    assert plan_from_bytes(plan_to_bytes(plan), "the server") == plan
    assert digest_of(plan) != digest_of(replace(plan, packages=()))
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    assert outcome.error is None
    found = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(found, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_site_without_the_package_says_what_to_install(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = install(tmp_path, monkeypatch)
    plan = plan_for(config)
    sys.path.remove(str(place))
    with pytest.raises(RefusedError, match=r"not installed here.*: pip install group-dro==0\.1\.0"):
        plan_from_bytes(plan_to_bytes(plan), "the server")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0.2.0"}, "here is version 0.1.0: pip install group-dro==0.2.0"),
        ({"digest": "0123"}, "whose code is not the same here"),
        ({"package": "other"}, "which is of the package 'group-dro' here"),
        ({"package": "a b; rm"}, "without a proper name and version"),
        ({"method": "afl"}, "which is of the package 'group-dro' here"),
    ],
)
def test_a_site_with_another_package_refuses(
    change: dict[str, str],
    words: str,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, monkeypatch)
    plan = plan_for(config)
    other = replace(plan, packages=(replace(plan.packages[0], **change),))
    with pytest.raises(RefusedError, match=words):
        plan_from_bytes(plan_to_bytes(other), "the server")


def test_a_plan_of_built_in_methods_names_no_package(tmp_path: Path) -> None:
    assert plan_for(write_tables(tmp_path)).packages == ()


def test_a_broken_package_costs_a_line_and_nothing_else(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, code=BROKEN)
    listed = fedminmax("methods", cwd=tmp_path)
    assert listed.returncode == 0
    assert listed.stderr == (
        "fedminmax: warning: method 'group-dro' of the package 'group-dro' 0.1.0 cannot be loaded "
        "(ModuleNotFoundError: No module named 'no_such_module'); repair or uninstall the package\n"
    )
    assert list(CARDS) == list(BUILT_IN)
    assert "'group-dro' 0.1.0 cannot be loaded" in complaint("train", config.name, cwd=tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"key": "fedminmax"},
            "'group-dro' has a method 'fedminmax', which is the name of a built-in one",
        ),
        ({"key": "other"}, "is registered as 'group-dro'; its entry point must have the same name"),
        ({"target": "Sums"}, "group_dro:Sums is not a class with @fedminmax.extend.MethodCard"),
        ({"target": "Missing"}, "cannot be loaded"),
        ({"code": "raise SystemExit(3)"}, "cannot be loaded"),
        ({"code": CODE.replace("rate: float = 0.1", "rate: float")}, "created without options"),
    ],
)
def test_what_is_no_method_is_named_and_passed_over(
    changes: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, **changes)
    assert [words in line for line in unusable_methods()] == [True]
    assert list(CARDS) == list(BUILT_IN)
    assert CARDS["fedminmax"] is BUILT_IN["fedminmax"]


def test_two_packages_with_the_same_key_are_both_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    install(tmp_path, monkeypatch, package="another", module="another_dro")
    with pytest.raises(InputError, match="in the packages 'another' and 'group-dro'; uninstall"):
        CARDS["group-dro"]
    assert len(unusable_methods()) == 1


def test_all_that_the_room_of_methods_needs_of_messages_is_offered() -> None:
    extend = import_module("fedminmax.extend")
    wanted = "Census Order Sums RowWeights SiteData Workspace descend MethodCard RoundKey Reveals"
    assert set(wanted.split()) <= set(extend.__all__)
    assert all(hasattr(extend, name) for name in extend.__all__)
