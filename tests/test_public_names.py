"""What users import: few names on top, the rest in namespaces, nothing heavy before it is used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedminmax

NAMESPACES = ["data", "losses", "methods", "metrics", "models", "training"]
PACKAGES = ["fedminmax", *(f"fedminmax.{name}" for name in NAMESPACES)]


def test_names_and_namespaces_are_seen_without_importing_torch() -> None:
    program = (
        "import sys, fedminmax; shown = dir(fedminmax), dir(fedminmax.methods);"
        "print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules], *shown)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("[] ")
    for name in ("'train'", "'FedMinMaxClassifier'", "'methods'", "'AFL'"):
        assert name in done.stdout
    assert len(set(dir(fedminmax)) - set(NAMESPACES)) <= 17


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_for_python_and_for_type_checkers(package: str) -> None:
    module = import_module(package)
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())
    listed = next(node for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(listed.value)) == sorted(module.__all__) == dir(module)
    for name in module.__all__:
        found = getattr(module, name)
        # A file of the same name would hide it, depending on what was imported before.
        submodule = f"{package}.{name}"
        assert submodule not in sys.modules or found is sys.modules[submodule], submodule
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing
