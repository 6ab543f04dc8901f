"""Every package that parts of the library need is known, with an extra that really brings it."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from fedminmax.core.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Extras that no part of the library needs.
OF_CONTRIBUTORS = ("dev", "docs")
# Parts of torch and of pydantic: there whenever those are.
OF_OTHERS = {"pydantic_core", "typing_extensions"}
# What MLflow needs for a database, and imports itself.
OF_MLFLOW = {"alembic", "sqlalchemy"}


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}


OF_EXTRA = {
    name: distributions(wanted)
    for name, wanted in PROJECT["optional-dependencies"].items()
    if name not in OF_CONTRIBUTORS
}


def imported_packages() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module or "")
    return {name.split(".")[0] for name in found}


def test_what_the_code_imports_is_required_or_known() -> None:
    required = distributions(PROJECT["dependencies"])
    known = sys.stdlib_module_names | required | EXTRAS.keys() | {"fedminmax"}
    assert imported_packages() - known - OF_OTHERS == set()


def test_what_an_extra_brings_is_known() -> None:
    installed = packages_distributions()
    known = {one.lower() for package in EXTRAS for one in installed[package]}
    assert set().union(*OF_EXTRA.values()) - known - OF_MLFLOW == {"fedminmax"}


def test_each_package_comes_with_the_extra_that_is_named() -> None:
    installed = packages_distributions()
    for package, extra in EXTRAS.items():
        assert OF_EXTRA[extra] & {one.lower() for one in installed[package]}, package
