"""What leaves a site, in words: whatever of a configuration makes something leave is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedminmax.config.read import TableConfig
from fedminmax.config.sections import ModelSection
from fedminmax.core.errors import InputError
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.site_summary import summarise
from fedminmax.network.site.policy import read_rows
from fedminmax.network.site.preview import check_site, max_parameters
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import plan_of_config, task_of
from fedminmax.network.wire.site_rules import SiteRules
from tests.network.network_problem import SITES


def leaves(config: TableConfig, folder: Path, minimum: int = 1) -> str:
    settings = SiteSettings(folder / "north.csv", suppress_below=minimum)
    return "\n".join(check_site(config, settings, "north").leaves)


def with_method(config: TableConfig, **changes: Any) -> TableConfig:
    return replace(config, method=replace(config.method, **changes))


def test_the_rounds_of_the_baseline_are_rounds_too(config: TableConfig, tmp_path: Path) -> None:
    words = leaves(with_method(config, baseline="fedavg"), tmp_path)
    assert "in each of 3 rounds of fedminmax" in words
    assert "in each of 3 rounds of fedavg" in words
    assert "for the model of fedminmax and fedavg" in words
    assert "fedavg" not in leaves(config, tmp_path)


def test_an_open_learning_rate_is_asked_for(config: TableConfig, tmp_path: Path) -> None:
    assert "before the first round" not in leaves(config, tmp_path)
    assert "30 times before the first round" in leaves(with_method(config, options={}), tmp_path)
    local = with_method(config, name="fedavg", options={})
    assert "before the first round" not in leaves(local, tmp_path)


def test_only_groups_with_enough_held_out_rows_are_measured(
    config: TableConfig, tmp_path: Path
) -> None:
    plan = plan_of_config(config, "check", SITES, SiteRules())
    held_out = read_rows(plan, SiteSettings(tmp_path / "north.csv"), "north").held_out
    names = [held_out.group_keys[place][0] for place in held_out.group.tolist()]
    women, men = names.count("Female"), names.count("Male")
    assert women != men
    both = leaves(config, tmp_path, min(women, men))
    assert "held-out rows of 'Female', 'Male'" in both
    one = leaves(config, tmp_path, max(women, men))
    assert f"held-out rows of '{'Female' if women > men else 'Male'}'," in one
    assert "after training" not in leaves(config, tmp_path, max(women, men) + 1)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedminmax", "by group, and one vector as long"),
        ("drfa", "by group, and one or more vectors as long"),
        ("fedfb", "how unequal the groups' rates are, and one or more vectors"),
    ],
)
def test_what_a_method_needs_is_said(
    method: str, words: str, config: TableConfig, tmp_path: Path
) -> None:
    assert words in leaves(with_method(config, name=method, options={}), tmp_path)


def test_sums_by_group_are_said_and_groups_whose_rows_they_nearly_show(
    config: TableConfig, tmp_path: Path
) -> None:
    """A row has at most age, its gap, three wards, their gap and a 1: seven columns, two outputs.

    The products of seven columns with themselves and each other are 7 x 8 / 2.
    """
    config = with_method(config, name="fedminmax-fast", options={})
    whole = leaves(config, tmp_path)
    assert "for each group: its loss sum, its row count, a gradient" in whole
    assert "(at most 14 numbers) and curvature" in whole
    assert "(at most 28 numbers); at most 336 bytes" in whole
    assert "nearly reveal" not in whole
    lines = (tmp_path / "north.csv").read_text().splitlines(keepends=True)
    women = [line for line in lines if "Female" in line]
    men = [line for line in lines if "Female" not in line]
    (tmp_path / "north.csv").write_text("".join(men + women[:8]))
    few = leaves(config, tmp_path)
    assert "'Female': here at most as many rows as the 7 columns" in few
    assert "--suppress-below 8 keeps" in few
    network = leaves(replace(config, model=ModelSection("mlp", (7,), "brier")), tmp_path)
    assert "curvature" not in network


@pytest.mark.parametrize("hidden", [(), (7, 5)])
def test_the_models_size_is_the_encoded_models_if_all_categories_and_gaps_occur(
    hidden: tuple[int, ...], config: TableConfig, tmp_path: Path
) -> None:
    config = replace(config, model=ModelSection("mlp", hidden, "brier"))
    table = tmp_path / "north.csv"
    whole = _parameters(config, table)
    assert whole < max_parameters(config)
    table.write_text(table.read_text() + ",Male,a,no\n50,Male,,no\n" * 20)
    assert _parameters(config, table) == max_parameters(config)
    assert f"{4 * max_parameters(config):,} bytes" in leaves(config, tmp_path)


def _parameters(config: TableConfig, table: Path) -> int:
    """The parameters of the model that would really be trained on this table."""
    plan = plan_of_config(config, "check", SITES, SiteRules())
    rows = read_rows(plan, SiteSettings(table), "north").train
    encoding = agree_on_encoding(config.schema, summarise(rows, config.schema))
    return len(task_of(plan, encoding).initial_parameters)


def test_what_an_additive_model_needs_is_said(config: TableConfig, tmp_path: Path) -> None:
    """128 bins of age, three wards, gaps and other values: 134 codes; ten pairs of 169 cells."""
    section = ModelSection("additive", (), "cross_entropy", 1e-6, pairs=10)
    config = with_method(replace(config, model=section), name="fedminmax-fast", options={})
    words = leaves(config, tmp_path)
    assert "up to 3 times, to agree on bins: how many values of age are in each cell" in words
    assert "up to 20 times, to choose the smoothing" in words
    assert "by cell of every two columns" in words
    assert max_parameters(config) == 2 * (129 + 5 + 1690 + 1)
    products = 1825 * 1826 // 2
    assert f"the same two codes (at most {products:,} numbers)" in words
    alone = replace(config, model=replace(section, pairs=0))
    assert "up to 10 times, to choose the smoothing" in leaves(alone, tmp_path)
    assert "every two columns" not in leaves(alone, tmp_path)
    assert "to agree on bins" not in leaves(
        replace(config, model=ModelSection("logistic", (), "brier")), tmp_path
    )


def test_a_proof_after_training_is_named(config: TableConfig, tmp_path: Path) -> None:
    proved = with_method(
        replace(config, model=ModelSection("logistic", (), "cross_entropy", 1e-2)), certify=True
    )
    words = leaves(proved, tmp_path)
    assert "after training, up to 20 times, to prove how good the model of fedminmax is" in words
    assert "curvature, which is weighted sums of products" in words
    assert "to prove" not in leaves(config, tmp_path)


def test_masked_numbers_are_said_to_be_masked(config: TableConfig, tmp_path: Path) -> None:
    (protected,) = config.schema.protected
    listed = replace(protected, values=("Female", "Male"))
    config = replace(config, schema=replace(config.schema, protected=(listed,)))
    assert "can see yours separately" in leaves(config, tmp_path)
    masked = leaves(replace(config, secure_aggregation=True), tmp_path)
    assert "only the total over sites can be read" in masked
    assert "separately" not in masked
    afl = with_method(replace(config, secure_aggregation=True), name="afl", options={})
    with pytest.raises(InputError, match="secure_aggregation: method 'afl' needs"):
        leaves(afl, tmp_path)
