"""The sections of the file: every key is on its page, and what a file leaves open is filled in."""

import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from fedminmax.config.sections import ConfigSections, resolved

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
    file = {"model": {"kind": "mlp", "loss": "brier", "ridge": 2.0}, "method": {"rounds": 3}}
    filled = resolved(file)
    assert filled["model"] == file["model"]
    assert filled["method"]["rounds"] == 3


@pytest.mark.parametrize(
    ("extra", "kind"),
    [("", "additive"), ("[privacy]\nepsilon = 1\ndelta = 1e-5\n", "logistic")],
)
def test_the_usual_model_is_additive_unless_privacy_is_promised(extra: str, kind: str) -> None:
    file = tomllib.loads('[data]\ntarget = "ill"\n' + extra)
    assert resolved(file)["model"]["kind"] == kind
