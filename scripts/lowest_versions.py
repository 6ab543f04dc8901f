"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip.

usage: python scripts/lowest_versions.py > constraints-lowest.txt

Tools of contributors (the extras `dev` and `docs`) are not included: they have no users.
"""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

OF_CONTRIBUTORS = ("dev", "docs")
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest_versions(project: Path = PROJECT) -> dict[str, str]:
    """Return name and lowest version of all dependencies and extras; each must have one."""
    content = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras = content["optional-dependencies"]
    listed = [*content["dependencies"]]
    listed += [
        one for extra, wanted in extras.items() if extra not in OF_CONTRIBUTORS for one in wanted
    ]
    lowest: dict[str, str] = {}
    for requirement in map(Requirement, listed):
        if requirement.name == content["name"]:
            continue
        (bound,) = (one for one in requirement.specifier if one.operator in (">=", "=="))
        version = bound.version.removesuffix(".*")
        if lowest.setdefault(requirement.name, version) != version:
            raise ValueError(f"{requirement.name} has two lower bounds; give it one")
    return dict(sorted(lowest.items()))


if __name__ == "__main__":
    for name, version in lowest_versions().items():
        print(f"{name}=={version}")
