"""What a call sets comes before what the file says, and nothing else changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.read import NO_OVERRIDES, Overrides, read_config
from tests.complaints import complaint_of
from tests.data.tables.small_tables import write_config

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
        (Overrides(optimality_gap=0.1), "--optimality-gap 0.1: fedminmax does not know"),
    ],
)
def test_what_the_configuration_does_not_allow_is_refused(
    overrides: Overrides, expected: str, tmp_path: Path
) -> None:
    config = read_config(write_config(tmp_path))
    assert complaint_of(lambda: overrides.apply(config)).startswith(expected)
