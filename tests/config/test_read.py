"""Configurations: what is read is what was written, and each mistake names its key.

What a call sets comes before what the file says, and nothing else changes.

The sections of the file: every key is on its page, and what a file leaves open is filled in.
"""

import re
import tomllib
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.messages import toml_key, toml_string
from fedminmax.config.read import NO_OVERRIDES, Overrides, Source, read_config
from fedminmax.config.sections import ConfigSections, MethodSection, ModelSection, resolved
from fedminmax.methods.catalogue import CARDS
from tests.complaints import complaint_of
from tests.data.tables.small_tables import SCHEMA, write_config

TARGET = 'target = "ill"\n'
CLASSES = 'classes = ["no", "yes"]'
COLUMNS = 'columns = ["sex"]'
FEDMINMAX_OPTIONS = ("learning_rate", "adversary_rate", "min_weight", "keep_share")
METHOD = 'name = "fedminmax"'


def test_a_whole_configuration(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, ("rounds = 10", "rounds = 10\nmin_weight = 0.01")))
    assert config.schema == SCHEMA
    assert config.training == (
        Source(tmp_path / "north.csv", "north"),
        Source(tmp_path / "south.csv", "south"),
    )
    assert config.test == ()
    assert (config.held_out, config.seed, config.format.delimiter) == (0.0, 0, "auto")
    assert config.model == ModelSection("logistic", (), "brier")
    assert config.method == MethodSection(
        "fedminmax", {"min_weight": "0.01"}, 10, participation=1.0, baseline="fedavg"
    )


def test_what_is_left_open_depends_on_the_method(tmp_path: Path) -> None:
    """Algorithm 1 by its name has what it always had; the default carries a proof."""
    nothing = ("rounds = 10\n", "")
    unnamed = ('name = "fedminmax"\n', "")
    linear = ('classes = ["no", "yes"]', 'task = "regression"')
    network = ('kind = "logistic"', 'kind = "mlp"\nhidden = [3]')
    config = read_config(write_config(tmp_path, nothing))
    assert config.model == ModelSection("logistic", (), "brier", 0.0)
    assert (config.method.rounds, config.method.baseline) == (500, "fedavg")
    config = read_config(write_config(tmp_path, nothing, unnamed))
    assert config.model == ModelSection("logistic", (), "cross_entropy", 1e-4)
    assert config.method.name == "fedminmax-fast"
    assert (config.method.rounds, config.method.baseline) == (200, "fedavg-fast")
    assert config.patience is None
    regression = (linear, ('kind = "logistic"', 'kind = "linear"'))
    config = read_config(write_config(tmp_path, nothing, unnamed, *regression))
    assert config.model == ModelSection("linear", (), "squared_error", 1e-6)
    additive = ('kind = "logistic"', 'kind = "additive"\nsmoothness = "auto"')
    config = read_config(write_config(tmp_path, nothing, unnamed, additive))
    assert config.model == ModelSection("additive", (), "cross_entropy", 1e-6, pairs=10)
    assert config.method.options == {"tolerance": "0.005"}
    for own in ("tolerance = 0.0", "keep_share = 0.3"):
        # One of both forms is enough: the other one has no default then.
        config = read_config(write_config(tmp_path, nothing, (unnamed[0], own + "\n"), additive))
        assert config.method.options == dict([own.split(" = ")])
    config = read_config(write_config(tmp_path, nothing, unnamed, network))
    effects = ModelSection("mlp", (3,), "cross_entropy", 0.0, pairs=10, inputs="effects")
    assert config.model == effects
    assert (config.validation, config.patience) == (0.1, 30)
    assert config.method.options == {"linear_start": "true", "keep_share": "0.5"}


def test_a_configuration_answers_with_what_its_method_does_elsewhere(
    tmp_path: Path,
) -> None:
    for key, card in CARDS.items():
        config = read_config(write_config(tmp_path, (METHOD, f'name = "{key}"')))
        assert config.iterate is card.build({}).output, key


def test_a_share_is_held_out_unless_there_are_test_files(tmp_path: Path) -> None:
    nothing = ("held_out = 0\n", "")
    assert read_config(write_config(tmp_path, nothing)).held_out == 0.2
    files = ("[groups]", '[data.test]\nnorth = "test.csv"\n[groups]')
    config = read_config(write_config(tmp_path, nothing, files))
    assert config.held_out == 0.0
    assert config.test == (Source(tmp_path / "test.csv", "north"),)


def test_the_positive_class_is_the_last_one_of_a_model(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, (CLASSES, f'{CLASSES}\npositive = "no"')))
    assert config.schema.target.classes == ("yes", "no")


@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_any_name_survives_being_written(name: str) -> None:
    assert tomllib.loads(f"{toml_key(name)} = {toml_string(name)}") == {name: name}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("held_out = 0", "held_out = 1.5", "[data] held_out is 1.5; give a number less than 1"),
        (
            "held_out = 0",
            "held_out = -1",
            "[data] held_out is -1; give a number greater than or equal to 0",
        ),
        ("held_out = 0", "held_out = '0'", "[data] held_out is '0'; give a number"),
        ("held_out = 0", "sede = 0", "[data] 'sede' is unknown; did you mean 'seed'?"),
        (
            "[features.age]",
            "[features.age]\nkidn = 1",
            "[features.age] 'kidn' is unknown; did you mean 'kind'?",
        ),
        (TARGET, "", "[data] target is missing; add it"),
        (TARGET, "target = 3\n", "[data] target is 3; give a text in quotes"),
        (TARGET, 'target = ""\n', "[data] target is ''; give a text that is not empty"),
        (CLASSES, "classes = [0, 1]", "[data] an entry of classes is 0; give a text in quotes"),
        (CLASSES, 'classes = "no"', "[data] classes is 'no'; give a list in brackets"),
        (
            CLASSES,
            'classes = ["no"]',
            '[data] classes has 1 entries; list at least two, or set task = "regression"',
        ),
        (
            CLASSES,
            f'{CLASSES}\npositive = "yess"',
            "[data] positive = 'yess' is not one of two classes; did you mean 'yes'?",
        ),
        (CLASSES, 'classes = ["no", "no"]', "[data] classes has 'no' twice; remove one of them"),
        (
            CLASSES,
            f'{CLASSES}\ntask = "regression"',
            '[data] classes are given, but task = "regression"; remove one of them',
        ),
        (
            CLASSES,
            f'{CLASSES}\ntask = "ranking"',
            "[data] task is 'ranking'; give 'classification' or 'regression'",
        ),
        (
            CLASSES,
            f'{CLASSES}\ndelimiter = "::"',
            "[data] delimiter is '::'; give one character or \"auto\"",
        ),
        (
            CLASSES,
            f'{CLASSES}\nfile = "all.csv"',
            (
                "[data] has both of file and [data.sites]; give a file for each site in "
                "[data.sites], or one file with its site_column"
            ),
        ),
        (
            '[data.sites]\nnorth = "north.csv"\nsouth = "south.csv"\n',
            "",
            (
                "[data] has neither of file and [data.sites]; give a file for each site in "
                "[data.sites], or one file with its site_column"
            ),
        ),
        (
            CLASSES,
            f'{CLASSES}\nsite_column = "ward"',
            "[data] needs both file and site_column, or neither of them",
        ),
        (
            'south = "south.csv"',
            'north = "south.csv"',
            (
                "the same key is given twice (at line 8, column 20); give each site and column "
                "its own name"
            ),
        ),
        (
            'south = "south.csv"',
            'south = "north.csv"',
            "[data.sites] 'north' and 'south' are both north.csv; give each its own file",
        ),
        (
            "held_out = 0",
            'held_out = 0.1\ntest = {north = "t.csv"}',
            "[data] has test files and held_out = 0.1; remove one of them",
        ),
        (
            'kind = "numeric"',
            'kind = "number"',
            "[features.age] kind is 'number'; give 'numeric', 'category', 'boolean' or 'date'",
        ),
        (
            'kind = "category"',
            'kind = "numeric"',
            (
                '[features.ward] has kind = "numeric" and 3 categories; only a category has them: '
                "remove the list, or correct the kind"
            ),
        ),
        (
            'categories = ["a", "b", "c"]',
            'categories = ["a", "a"]',
            "[features.ward] categories has 'a' twice; remove one of them",
        ),
        (
            'kind = "numeric"',
            'kind = "numeric"\nformat = "%Y"',
            '[features.age] has a format, but kind = "numeric"; only dates have one',
        ),
        (
            "[features.age]",
            "[features.ill]",
            "[features.ill] is the target, site, person or weight column; remove this section",
        ),
        (COLUMNS, "columns = []", "[groups] columns is []; give at least one entry"),
        (
            COLUMNS,
            'columns = ["sex", "ill"]',
            "[groups] columns has the target 'ill'; choose another column",
        ),
        (
            COLUMNS,
            f"{COLUMNS}\n[groups.bands]\nage = [30]",
            "[groups.bands] 'age' is not among the columns; there is 'sex'",
        ),
        (
            COLUMNS,
            f'{COLUMNS}\n[groups.values]\nsxe = ["Female"]',
            "[groups.values] 'sxe' is not among the columns; did you mean 'sex'?",
        ),
        (
            COLUMNS,
            'columns = ["age"]\nbands = {age = [30]}\nvalues = {age = ["30"]}',
            "[groups] has values and bands of age; remove one of them",
        ),
        (
            COLUMNS,
            'columns = ["age"]\nbands = {age = [45, 30]}',
            "[groups.bands] age = [45.0, 30.0]; give increasing numbers",
        ),
        (
            COLUMNS,
            f"{COLUMNS}\nas_features = true",
            "[groups] as_features = true, but [features.sex] is missing; add it",
        ),
        (
            COLUMNS,
            f'{COLUMNS}\nmissing = "drop"',
            "[groups] missing is 'drop'; give 'error', 'own_group' or 'leave_out'",
        ),
        (
            COLUMNS,
            'columns = ["age", "ward", "smoker"]',
            "[features] has no feature for the model; add one",
        ),
        (
            'kind = "logistic"',
            'kind = "linear"',
            (
                '[model] kind = "linear" does not fit classification; '
                'give "additive", "logistic" or "mlp"'
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "mlp"',
            (
                '[model] kind = "mlp" has hidden = []; an mlp needs hidden layers such as '
                "[64, 64], other models have none"
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "logistic"\nloss = "squared_error"',
            (
                '[model] loss = "squared_error" does not fit classification; give "brier" or '
                '"cross_entropy"'
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "logistic"\nridge = -1',
            "[model] ridge is -1; give a number greater than or equal to 0",
        ),
        (
            'kind = "logistic"',
            'kind = "mlp"\nhidden = [3]\nridge = 0.1',
            (
                "[model] ridge = 0.1 is a penalty for logistic, linear and additive "
                "models; remove it, or choose one of these"
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "logistic"\npairs = 3',
            '[model] pairs is for kind = "additive", not "logistic"; remove one of them',
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nsmoothness = -1',
            "[model] smoothness is -1; give a number greater than 0",
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nridge = 0',
            '[model] ridge = 0, but kind = "additive" needs a small one; remove it, or give 1e-6',
        ),
        (
            'kind = "logistic"',
            'kind = "logistic"\nmonotone = { age = "up" }',
            '[model] monotone is for kind = "additive", not "logistic"; remove one of them',
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nmonotone = { age = "upwards" }',
            "[model.monotone] age is 'upwards'; give 'up' or 'down'",
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nmonotone = { aeg = "up" }',
            "[model] monotone has 'aeg', which is no feature; did you mean 'age'?",
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nmonotone = { ward = "up" }',
            (
                "[model] monotone has 'ward', which is a category; only numbers, dates and "
                "booleans have an order: remove it, or correct the kind"
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\nmonotone = { age = "up" }',
            (
                '[model] monotone needs second derivatives, which [method] name = "fedminmax" does '
                "not use; give fedminmax-fast, fedavg-fast, afl-fast, or remove monotone"
            ),
        ),
        (
            'kind = "logistic"',
            'kind = "additive"\n[privacy]\nepsilon = 1\ndelta = 1e-5',
            (
                '[model] kind = "additive", but its bins and its smoothing are chosen from counts '
                "and sums without noise, which the promise in [privacy] does not cover; set kind "
                '= "logistic"'
            ),
        ),
        (
            METHOD,
            'name = "fedminimax"',
            "[method] name = 'fedminimax' is unknown; did you mean 'fedminmax'?",
        ),
        (
            METHOD,
            f'{METHOD}\nlearning_rate = "fast"',
            "[method] fedminmax: learning_rate = fast was given; expected a number",
        ),
        (
            METHOD,
            f"{METHOD}\nmu = 1",
            f"[method] fedminmax has no option 'mu'; it has {', '.join(FEDMINMAX_OPTIONS)}",
        ),
        (
            METHOD,
            f"{METHOD}\nlearning_rate = -1",
            "[method] FedMinMax: learning_rate = -1; give a positive number",
        ),
        (
            METHOD,
            'name = "fedminmax-fast"\niterate = "last"',
            (
                '[method] iterate = "last", but fedminmax-fast chooses its model by itself; '
                "remove it, or choose another method"
            ),
        ),
        (
            "rounds = 10",
            "rounds = 0",
            "[method] rounds is 0; give a number greater than or equal to 1",
        ),
        ("[method]", "[methods]", "'methods' is unknown; did you mean 'method'?"),
    ],
)
def test_a_mistake_names_its_key(old: str, new: str, expected: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, (old, new))
    assert complaint_of(lambda: read_config(path)) == f"{path}: {expected}"


def test_bad_grammar_names_the_line(tmp_path: Path) -> None:
    path = write_config(tmp_path, ("held_out = 0", "held_out: 0"))
    said = complaint_of(lambda: read_config(path))
    assert said.startswith(f"{path}: is not valid TOML: ")
    assert "line 5" in said


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "fedminmax.toml"
    expected = f"{path} does not exist; write one with 'fedminmax init'"
    assert complaint_of(lambda: read_config(path)) == expected


FAST = ('name = "fedminmax"', 'name = "fedminmax-fast"')


def test_what_is_not_given_stays(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path))
    assert NO_OVERRIDES.apply(config) == config


def test_what_is_given_replaces_the_file(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, FAST))
    changed = Overrides(
        rounds=7,
        seed=9,
        validation=0.2,
        patience=3,
        optimality_gap=0.5,
        mlflow_uri="a",
        certify=True,
    ).apply(config)
    method = config.method
    options = dict(changed.method.options)
    assert list(options.values()) == [*method.options.values(), "0.5"]
    assert changed == replace(
        config,
        seed=9,
        validation=0.2,
        method=replace(method, rounds=7, patience=3, certify=True, options=options),
        logging=replace(config.logging, mlflow_uri="a"),
    )


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (Overrides(patience=3), "patience = 3 needs validation rows"),
        (Overrides(validation=0.9), "validation = 0.9; give the share of validation rows"),
        (Overrides(optimality_gap=0.1), "optimality_gap = 0.1: fedminmax does not know"),
    ],
)
def test_what_the_configuration_does_not_allow_is_refused(
    overrides: Overrides, expected: str, tmp_path: Path
) -> None:
    config = read_config(write_config(tmp_path))
    assert complaint_of(lambda: overrides.apply(config)).startswith(expected)


PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
# The options of a method are keys of their own; `fedminmax methods` lists them.
NOT_KEYS = {"options"}


def section_classes() -> list[Any]:
    hints = get_type_hints(ConfigSections).values()
    return [kind for hint in hints for kind in (hint, *get_args(hint)) if is_dataclass(kind)]


def test_the_page_has_every_key_and_no_other() -> None:
    keys = {field.name for section in section_classes() for field in fields(section)} - NOT_KEYS
    first_cells = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)} == keys


def test_a_wrong_type_is_left_for_validation_to_report() -> None:
    file = {"data": 3, "model": {"kind": ["mlp"]}, "method": {"name": [1]}, "privacy": "yes"}
    filled = resolved(file)
    assert (filled["data"], filled["privacy"]) == (3, "yes")
    assert filled["model"]["kind"] == ["mlp"]
    assert filled["method"]["name"] == [1]


def test_what_is_stated_is_kept() -> None:
    model = {"kind": "mlp", "loss": "brier", "ridge": 2.0}
    filled = resolved({"model": model, "method": {"rounds": 3}})
    assert filled["model"] == {**model, "inputs": "effects", "pairs": 10}
    assert filled["method"]["rounds"] == 3


@pytest.mark.parametrize(
    ("extra", "kind"),
    [("", "additive"), ("[privacy]\nepsilon = 1\ndelta = 1e-5\n", "logistic")],
)
def test_the_usual_model_is_additive_unless_privacy_is_promised(extra: str, kind: str) -> None:
    file = tomllib.loads('[data]\ntarget = "ill"\n' + extra)
    assert resolved(file)["model"]["kind"] == kind
