"""A package with a method of its own, as an installer leaves it: a module and its metadata."""

import re
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "own_method.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    package: str = "group-dro",
    module: str = "group_dro",
    code: str = CODE,
    key: str = "group-dro",
    target: str = "GroupDRO",
    version: str = "0.1.0",
) -> Path:
    """Put the package on the path for this test; return the folder to remove it by."""
    place = folder / f"site-packages-{package}"
    metadata = place / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (place / f"{module}.py").write_text(code)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    )
    (metadata / "entry_points.txt").write_text(f"[fedminmax.methods]\n{key} = {module}:{target}\n")
    monkeypatch.syspath_prepend(place)
    # What another test imported under this name is not this package.
    monkeypatch.delitem(sys.modules, module, raising=False)
    return place
