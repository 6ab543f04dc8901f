"""`make test-lowest` needs one lower bound for every dependency, whichever extras ask for it."""

import tomllib

from packaging.requirements import Requirement
from packaging.version import Version
from scripts.lowest_versions import OF_CONTRIBUTORS, PROJECT, lowest_versions


def test_every_dependency_has_one_lowest_version_that_all_its_bounds_allow() -> None:
    lowest = lowest_versions()
    project = tomllib.loads(PROJECT.read_text())["project"]
    listed = [*project["dependencies"]]
    for extra, wanted in project["optional-dependencies"].items():
        listed += [] if extra in OF_CONTRIBUTORS else wanted
    others = [one for one in map(Requirement, listed) if one.name != "fedminmax"]
    assert {one.name for one in others} == set(lowest)
    assert all(Version(lowest[one.name]) in one.specifier for one in others)
