"""Public names that are imported when first used: `import fedminmax` must not import torch.

A package's stub (`__init__.pyi`) is the one list of its names: type checkers and editors read it,
and so does the package itself.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of the package with this ``__file__``."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        imported.name: statement.module
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for imported in statement.names
    }

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(homes[name]), name)

    names = sorted(homes)
    return get, lambda: names, names
