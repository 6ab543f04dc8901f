"""What users of the Python interface get wrong is one line, and numpy's numbers are numbers."""

import ast
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedminmax
import fedminmax as fm
from fedminmax.core.solvers.simplex import project_on_simplex as typed_projection
from tests.complaints import complaint_of
from tests.problems import softmax_problem

# As Any: these are the mistakes that a type checker would find.
anything: Any = fm
data: Any = fm.data
ESG, SSG, by_setting = data.Setting.ESG, data.Setting.SSG, data.partition_by_setting
federation: Any = fm.training
methods: Any = fm.methods
models: Any = fm.models
project_on_simplex: Any = typed_projection
FEDERATION = softmax_problem([[2, 1], [1, 2]]).federation()
GROUP = torch.tensor([0, 0, 1, 1])
X, Y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
NAMESPACES = ["data", "losses", "methods", "metrics", "models", "training"]
PACKAGES = ["fedminmax", *(f"fedminmax.{name}" for name in NAMESPACES)]


def train(method: Any = fm.FedMinMax(), federation: Any = FEDERATION, **words: Any) -> Any:  # noqa: B008
    return list(fm.train(federation, method, **({"rounds": 2} | words)))[-1]


def fit(**settings: Any) -> Any:
    return fm.FedMinMaxClassifier(**({"rounds": 2} | settings)).fit(X, Y)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: train(methods.AFL), "the class AFL; give AFL()"),
        (lambda: train("AFL"), "method = 'AFL'"),
        (lambda: train(None), "method = None"),
        (lambda: federation.initial_progress(FEDERATION, methods.AFL), "the class AFL; give AFL()"),
        (lambda: train(methods.AFL(), "sites"), "federation = 'sites'"),
        (lambda: train(participation="0.5"), "participation = '0.5'"),
        (lambda: train(participation=None), "participation = None"),
        (
            lambda: federation.initial_progress(FEDERATION, methods.AFL(), seed=methods.AFL),
            "seed = ",
        ),
        (lambda: train(rounds=2.0), "rounds = 2.0; give a whole number"),
        (lambda: train(rounds=True), "rounds = True"),
        (lambda: methods.FedAvg(learning_rate=None), "learning_rate = None; give a positive"),
        (lambda: anything.FedMinMax(adversary_rate="0.1"), "adversary_rate = '0.1'"),
        (lambda: anything.FedMinMax(learning_rate=True), "learning_rate = True"),
        (lambda: methods.TERM(tilt="1"), "tilt = '1'"),
        (lambda: methods.FedMGDA(server_decay=None), "server_decay = None"),
        (lambda: methods.APStar(alpha="a"), "alpha = 'a'"),
        (lambda: anything.FedAvg(epochs="3"), "epochs = '3'"),
        (lambda: train(methods.AFL(output="last")), "output = 'last'; give one of Iterate"),
        (lambda: train(methods.FairFed(parity="equal")), "parity = 'equal'; give one of Parity"),
        (lambda: train().parameters("last"), "'last'; give one of Iterate, such as Iterate.LAST"),
        (lambda: models.mlp(2, 3, hidden=8), "hidden = 8; give the width of each layer"),
        (lambda: models.mlp(2, 3, hidden=("8",)), "width = '8'"),
        (lambda: models.linear(2.5, 3), "features = 2.5"),
        (lambda: models.cnn((28, 28)), "image = (28, 28); give 3 whole numbers"),
        (lambda: models.cnn((1, 3, 28)), "at least 4 by 4 pixels"),
        (lambda: models.Mixture([1], classifies=True), "torch modules; give a list"),
        (lambda: project_on_simplex([0.1, 0.2]), "needs a tensor of real numbers"),
        (lambda: project_on_simplex(torch.ones(2), floor=float("nan")), "finite numbers"),
        (
            lambda: by_setting("ESG", GROUP, 2, 0),
            "setting = 'ESG'; give one of Setting",
        ),
        (
            lambda: by_setting(ESG, GROUP - 1, 2, 0),
            "group -1 is negative",
        ),
        (lambda: by_setting(ESG, GROUP.float(), 2, 0), "torch.float32"),
        (
            lambda: by_setting(SSG, GROUP << 40, 2, 0),
            "renumber the groups from 0",
        ),
        (lambda: by_setting(ESG, [0, 1], 2, 0), "group is list"),
        (lambda: by_setting(ESG, GROUP, 2.5, 0), "sites = 2.5"),
        (lambda: by_setting(SSG, GROUP, 2, -1), "seed = -1"),
        (lambda: data.partition_by_dirichlet(GROUP, 2, "1", 0), "concentration = '1'"),
        (lambda: data.partition_by_dirichlet(GROUP, 2, float("inf"), 0), "concentration = inf"),
        (lambda: anything.load_model(None), "got None; give the folder"),
        (lambda: fit(hidden=8), "hidden = 8; give the width of each layer"),
        (lambda: fit(hidden=None), "hidden = None"),
        (lambda: fit(method=methods.AFL), "the class AFL; give AFL()"),
        (lambda: fit(method="AFL"), "method = 'AFL'"),
        (lambda: fit(learning_rate="auto"), "learning_rate = 'auto'"),
        (lambda: fit(random_state=-1), "random_state = -1"),
        (lambda: fit(standardize="no"), "standardize = 'no'; give True or False"),
        (lambda: fit(loss=["brier"]), "loss = ['brier']"),
        (lambda: metrics([0, 1], y_pred=["0", "1"]), "can never be equal"),
        (lambda: metrics([0, 1], y_pred=[0, 1], confidence="0.9"), "confidence = '0.9'"),
        (lambda: metrics([], y_pred=[]), "there are no rows"),
        (lambda: metrics([0, 1], y_prob=["a", "b"]), "y_prob has values that are not numbers"),
        (lambda: metrics([0, 1], y_prob=[0.1, 0.2], classes="ab"), "classes = 'ab'"),
        (lambda: metrics([[0], [1]], y_pred=[0, 1]), "y_true has shape (2, 1)"),
        (lambda: metrics([0.0, float("nan")], y_pred=[0, 1]), "y_true is NaN in row 1"),
        (lambda: metrics([0, 1], y_pred=[0, 1], positive=2), "positive = 2 is not one of"),
        (lambda: data.partition_by_dirichlet(GROUP, 2, 1e308, 0), "cannot be drawn from"),
    ],
)
def test_one_line_says_what_came(action: Callable[[], object], words: str) -> None:
    assert words in complaint_of(action)


def metrics(y_true: list[Any], **words: Any) -> object:
    return fm.group_metrics(y_true, sensitive_features=["a"] * len(y_true), **words)


def test_numpys_numbers_are_numbers() -> None:
    plain = fm.FedAvg(learning_rate=0.5, epochs=2, batch_size=2)
    from_numpy = anything.FedAvg(np.float64(0.5), np.int64(2), batch_size=np.int32(2))
    expected = train(plain, rounds=3, seed=4, participation=0.5)
    found = train(from_numpy, rounds=np.uint8(3), seed=np.int64(4), participation=np.float64(0.5))
    assert torch.equal(found.parameters(), expected.parameters())
    # Whoever goes on with the same numbers goes on with the same run.
    train(plain, rounds=4, seed=4, participation=0.5, resume=found.progress)
    assert [part.tolist() for part in by_setting(ESG, GROUP, np.int64(2), 0)]
    assert models.mlp(np.int64(2), np.int64(3), np.array([4]))[0].out_features == 4
    one, other = (fit(random_state=seed, hidden=(3,)) for seed in (np.int64(7), 7))
    assert (one.predict_proba(X) == other.predict_proba(X)).all()
    fit(hidden=np.array([4]), rounds=np.int64(2))


def test_a_folder_may_be_a_text_or_a_path(tmp_path: Path) -> None:
    done = train(seed=np.int64(3))
    start = federation.initial_progress(FEDERATION, fm.FedMinMax(), seed=3)
    federation.save_checkpoint(str(tmp_path / "a"), done.progress)
    for folder in (tmp_path / "a", str(tmp_path / "a")):
        restored = federation.load_checkpoint(folder, start)
        assert restored is not None
        assert restored.progress.round == 2
    before = (tmp_path / "a" / "checkpoint.bin").read_bytes()
    for wrong in ("text", done, None):
        for action in (federation.save_checkpoint, federation.load_checkpoint):
            assert "instead of a Progress" in complaint_of(partial(action, tmp_path / "a", wrong))
    assert (tmp_path / "a" / "checkpoint.bin").read_bytes() == before
    (tmp_path / "file").write_text("not a folder")
    for nowhere, words in ((None, "folder = None"), (tmp_path / "file", "is a file")):
        action = partial(federation.save_checkpoint, nowhere, done.progress)
        assert words in complaint_of(action)


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
