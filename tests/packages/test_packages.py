"""The packages of a release: complete, and usable from an empty environment with each extra alone.

Extras that add something to `fedminmax train` are used together with `cli` and `tables`; alone,
they must at least not be in the way.
"""

import json
import subprocess
import tarfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from scripts.lowest_versions import OF_CONTRIBUTORS, PROJECT, lowest_versions

import fedminmax
from fedminmax.core.errors import EXTRAS
from tests.network.network_problem import write_tables
from tests.packages.build import ROOT, Built, build_all
from tests.packages.environments import Environment, add_requirements, install

pytestmark = pytest.mark.slow

ALONE = sorted(set(EXTRAS.values()))
COMPARE = ("compare", "adult", "--quick", "--methods", "fedminmax-fast", "--settings", "ESG")
TRAIN = ("train", "fedminmax.toml", "--out")
COMMANDS = """
import json, sys
from fedminmax.cli.main import main
print([main(words) for words in json.loads(sys.argv[1])])
"""
ON_TENSORS = """
import torch
from fedminmax import Simulation, train
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.losses import cross_entropy_loss
from fedminmax.methods import FCFL, FedMinMaxFast
rows = torch.arange(80.0).reshape(40, 2) / 80
sites = [(rows, torch.arange(40) % 2, torch.arange(40) // 20)] * 2
def end(method, privacy=None):
    federation = Simulation(
        torch.nn.Linear(2, 2), cross_entropy_loss, sites, group_names=["a", "b"], privacy=privacy
    )
    *_, last = train(federation, method, rounds=2)
    return last.risks.tolist()
"""
# What each extra is for, as a program that needs it alone.
PROGRAMS = {
    "audit": """
from pathlib import Path
import pandas as pd
import skops.io
from sklearn.linear_model import LogisticRegression
from fedminmax.exports.given_model import read_model
from fedminmax.runs.audit import audit_files, write_audit
north = pd.read_csv("north.csv")
skops.io.dump(LogisticRegression().fit(north[["age"]], north["ill"]), "model.skops")
found = audit_files([read_model(Path("model.skops"))], [Path("south.csv")], "ill", ["sex"])
write_audit(Path("audited"), found)
print(found.results[0].groups)
""",
    "flower": """
from pathlib import Path
from fedminmax.flower import client_app, server_app
print(client_app(), server_app(Path("fedminmax.toml")))
""",
    "privacy": ON_TENSORS
    + "promise = Privacy(epsilon=1.0, delta=1e-5, clip=1.0, rounds=2)\n"
    + "print(end(FedMinMaxFast(curvature=False), promise))",
    "sklearn": """
import numpy as np
from fedminmax import FedMinMaxClassifier
x = np.random.default_rng(0).normal(size=(90, 2))
groups, sites = np.arange(90) % 2, np.arange(90) % 3
model = FedMinMaxClassifier().fit(x, x[:, 0] > 0, sensitive_features=groups, sites=sites)
print(model.score(x, x[:, 0] > 0))
""",
    "solvers": ON_TENSORS + "print(end(FCFL()))",
    "tables": 'import fedminmax; print(fedminmax.train_tables("fedminmax.toml"))',
}
# The same as a command, together with the extras that brings that command.
COMMANDS_WITH = {
    "flare": ("cli", ("federation", "create", "federation.toml", "--out", "kits")),
    "mlflow": ("cli,tables", (*TRAIN, "logged", "--mlflow-uri", "sqlite:///rounds.db")),
    "onnx": ("cli,tables", ("export", "run", "--onnx", "model.onnx")),
    "tensorboard": ("cli,tables", (*TRAIN, "written", "--tensorboard")),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def environments(built: Built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Environment]:
    """An environment for each extra, one with none, and one for the commands on tables."""
    places = tmp_path_factory.mktemp("environments")

    def one(extras: str) -> Environment:
        return install(built.wheel, extras, places / (extras or "none"))

    wanted = ["", "cli,tables", *ALONE]
    with ThreadPoolExecutor(2) as workers:
        return dict(zip(wanted, workers.map(one, wanted), strict=True))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, environments: dict[str, Environment]) -> Path:
    """Tables, a federation's description, and a run with which `cli,tables` was enough."""
    folder = tmp_path_factory.mktemp("work")
    write_tables(folder)
    people = '[people]\n"ann@lab.org" = "coordinator"\n'
    (folder / "federation.toml").write_text(f'sites = ["north", "south"]\n{people}')
    succeeded(environments["cli,tables"].fedminmax(*TRAIN, "run", cwd=folder))
    return folder


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_and_source_distribution_are_complete(built: Built) -> None:
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in package.glob("fedminmax/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with tarfile.open(built.source) as content:
        names = [name.split("/", 1)[-1] for name in content.getnames()]
    assert {f"src/{name}" for name in files} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "experiments", "docs"))]
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff"} <= set(names)
    for wheel in (built.wheel, built.direct_wheel):
        with ZipFile(wheel) as content:
            inside = {
                name: content.read(name)
                for name in content.namelist()
                if not name.startswith(f"fedminmax-{fedminmax.__version__}.dist-info/")
            }
        assert inside == files


def test_every_extra_has_a_use_here() -> None:
    assert sorted([*PROGRAMS, *COMMANDS_WITH, "cli"]) == ALONE


@pytest.mark.parametrize("extra", ["", *ALONE])
def test_the_command_answers_with_each_extra_alone(
    extra: str, environments: dict[str, Environment], tmp_path: Path
) -> None:
    environment = environments[extra]
    version = environment.fedminmax("--version", cwd=tmp_path)
    assert succeeded(version).strip() == fedminmax.__version__
    compared = environment.fedminmax(*COMPARE, cwd=tmp_path)
    if extra == "cli":
        assert "fedminmax-fast" in succeeded(compared)
    else:
        assert compared.returncode == 2
        # Flower brings rich itself.
        missing = "matplotlib" if extra == "flower" else "rich"
        line = f"fedminmax: error: {missing} is needed: pip install 'fedminmax[cli]'\n"
        assert (compared.stdout, compared.stderr) == ("", line)


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_alone_is_enough_for_its_program(
    extra: str, environments: dict[str, Environment], work: Path
) -> None:
    assert succeeded(environments[extra].python(PROGRAMS[extra], cwd=work))


@pytest.mark.parametrize("extra", COMMANDS_WITH)
def test_an_extra_adds_its_command(
    extra: str, environments: dict[str, Environment], work: Path, built: Built
) -> None:
    others, words = COMMANDS_WITH[extra]
    add_requirements(environments[extra], built.wheel, others)
    succeeded(environments[extra].fedminmax(*words, cwd=work))


def test_without_an_extra_one_line_says_what_to_install(
    environments: dict[str, Environment], work: Path
) -> None:
    private = (work / "fedminmax.toml").read_text() + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n"
    (work / "private.toml").write_text(private)
    wanted = {
        "dp_accounting": ("train", "private.toml", "--out", "private"),
        "mlflow": (*TRAIN, "new", "--mlflow-uri", "sqlite:///new.db"),
        "onnx": ("export", "run", "--onnx", "new.onnx"),
        "psutil": ("federation", "create", "federation.toml", "--out", "new-kits"),
        "tensorboard": (*TRAIN, "new", "--tensorboard"),
    }
    refused(environments["cli,tables"], wanted, work)
    refused(environments["cli"], {"pydantic": (*TRAIN, "new")}, work)


def refused(environment: Environment, wanted: dict[str, tuple[str, ...]], work: Path) -> None:
    """Run commands in one process; each must name its missing package and the extra with it."""
    done = environment.python(COMMANDS, json.dumps(list(wanted.values())), cwd=work)
    assert done.stdout == f"{[2] * len(wanted)}\n", done.stderr
    lines = [line for line in done.stderr.splitlines() if "fedminmax: note: " not in line]
    for line, package in zip(lines, wanted, strict=True):
        assert line.startswith("fedminmax: error: ")
        assert line.endswith(f"pip install 'fedminmax[{EXTRAS[package]}]'")


def test_every_dependency_has_one_lowest_version_that_all_its_bounds_allow() -> None:
    lowest = lowest_versions()
    project = tomllib.loads(PROJECT.read_text())["project"]
    listed = [*project["dependencies"]]
    for extra, wanted in project["optional-dependencies"].items():
        listed += [] if extra in OF_CONTRIBUTORS else wanted
    others = [one for one in map(Requirement, listed) if one.name != "fedminmax"]
    assert {one.name for one in others} == set(lowest)
    assert all(Version(lowest[one.name]) in one.specifier for one in others)
