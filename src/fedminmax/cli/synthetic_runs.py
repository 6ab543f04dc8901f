"""The runs behind the paper's Table 1: which there are, and how one is trained to its end."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear, mlp
from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed, torch_seeded
from fedminmax.data.partition import Setting, partition
from fedminmax.data.synthetic import GROUP_NAMES, GroupRisks, draw_synthetic, expected_risks
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.resumable import History, restore, train_resumably
from fedminmax.federation.train import Progress, start_of
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg, QFedAvgState
from fedminmax.report.files import write_json
from fedminmax.report.synthetic_results import CENTRALIZED, RunResult

TableMethod = AFL | FedAvg | FedMinMax | QFedAvg


@dataclass(frozen=True)
class SyntheticConfig:
    """Everything that decides a run's numbers; a folder holds runs of one configuration."""

    rows: int
    rounds: int
    local_rounds: int
    holders: int
    model: str
    hidden: tuple[int, ...]
    learning_rate: float
    adversary_rate: float
    epsilon: float
    epochs: int
    batch_size: int
    folds_by: str
    folds_in_all: int
    seed: int
    device: str


@dataclass(frozen=True)
class RunPlan:
    """One run of the experiment."""

    setting: str
    method: TableMethod
    fold: int

    @property
    def key(self) -> str:
        """The run's folder name."""
        words = f"{self.setting} {self.method.name} fold {self.fold}"
        kept = (c if c.isalnum() or c == "." else "-" for c in words.lower())
        return "-".join(part for part in "".join(kept).split("-") if part)

    def rounds(self, config: SyntheticConfig) -> int:
        """Rounds of this run: one-step and local methods have their own numbers."""
        one_step = isinstance(self.method, AFL | FedMinMax)
        return config.rounds if one_step else config.local_rounds

    def cost(self, config: SyntheticConfig) -> int:
        """Gradient evaluations of the whole run: what its time is proportional to."""
        epochs = 1 if isinstance(self.method, AFL | FedMinMax) else config.epochs
        return self.rounds(config) * epochs * config.rows


def method_named(name: str, config: SyntheticConfig) -> TableMethod:
    """Build a method of the table from its name on the command line."""
    rate, adversary = config.learning_rate, config.adversary_rate
    local = (config.epochs, config.batch_size)
    methods: dict[str, TableMethod] = {
        "afl": AFL(rate, adversary),
        "fedavg": FedAvg(rate, *local),
        "q-fedavg-0.2": QFedAvg(0.2, rate, *local),
        "q-fedavg-5": QFedAvg(5.0, rate, *local),
        "fedminmax": FedMinMax(rate, adversary, config.epsilon),
    }
    return methods[name]


def plan_runs(
    config: SyntheticConfig, settings: list[str], methods: list[str], folds: list[int]
) -> list[RunPlan]:
    """List the runs in the table's order, one whole table per fold."""
    table = [
        (setting, name)
        for setting in settings
        for name in methods
        if (name == CENTRALIZED) == (setting == CENTRALIZED)
    ]
    return [
        RunPlan(
            setting,
            method_named("fedminmax" if name == CENTRALIZED else name, config),
            fold,
        )
        for fold in folds
        for setting, name in table
    ]


def fold_rows(config: SyntheticConfig, fold: int) -> Examples:
    """Return the training rows of a fold.

    By seeds, each fold draws its own rows; by cross-validation, all folds share one draw and each
    leaves out its own part. The test risk is an exact expectation in both cases.
    """
    if config.folds_by == "seeds":
        return draw_synthetic(config.rows, fold_seed(config, fold))
    everything = draw_synthetic(config.rows, config.seed)
    order = numpy_stream(config.seed, Purpose.FOLDS).permutation(config.rows // 2)
    part = torch.from_numpy(order % config.folds_in_all).repeat(2)
    return everything.rows((part != fold).nonzero().squeeze(1))


def fold_seed(config: SyntheticConfig, fold: int) -> int:
    """Return the seed of a fold's rows (by seeds), partition and initialisation."""
    return stream_seed(config.seed, Purpose.FOLDS, fold)


def build_federation(config: SyntheticConfig, plan: RunPlan) -> InProcessFederation:
    """Draw the fold's rows and model and hand the rows to the holders."""
    seed = fold_seed(config, plan.fold)
    rows = fold_rows(config, plan.fold)
    with torch_seeded(seed, Purpose.INITIALISATION):
        model = mlp(1, 2, config.hidden) if config.model == "mlp" else linear(2, 2)
    if plan.setting == CENTRALIZED:
        parts = [torch.arange(len(rows))]
    else:
        parts = partition(Setting(plan.setting), rows.group, config.holders, seed)
    model.to(usable_device(config.device))
    x = features_of(config, rows.x)
    holders = [(x[part], rows.y[part], rows.group[part]) for part in parts]
    return InProcessFederation(model, brier_loss, holders, group_names=GROUP_NAMES)


def usable_device(name: str) -> torch.device:
    """Return the device of this name, or say that there is none."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name} cannot be used here; give cpu") from error


def features_of(config: SyntheticConfig, x: Tensor) -> Tensor:
    """What the model sees: x itself, or on which side of 0 it lies.

    A linear model of the two sides can express the optimum exactly, and is so cheap that samples
    can be large: it separates what a method does from what a network or a small sample adds.
    """
    return x if config.model == "mlp" else torch.cat([x <= 0, x > 0], dim=1).float()


def check_runs(config: SyntheticConfig, plans: list[RunPlan]) -> None:
    """Bring every kind of run to its start, so that a mistake shows before anything is written."""
    for plan in plans:
        if plan.fold == plans[0].fold:
            method: AnyMethod[Any] = plan.method
            start_of(build_federation(config, plan), method)


@dataclass(frozen=True)
class Tick:
    """What the display needs: how far a run is, and a complaint about a damaged file."""

    round: int
    complaint: str | None


def run_to_end(config: SyntheticConfig, plan: RunPlan, folder: Path) -> Iterator[Tick]:
    """Train a run to its last round, from where it stands, and leave ``result.json``."""
    # The table mixes methods, and so types of state; each is only ever given its own.
    method: AnyMethod[Any] = plan.method
    federation = build_federation(config, plan)
    progress, complaint = restore(folder, federation, method)
    history = History(folder / "history.jsonl", progress.round if progress else 0)
    yield Tick(progress.round if progress else 0, complaint)
    for done in train_resumably(
        folder,
        federation,
        method,
        rounds=plan.rounds(config),
        seed=fold_seed(config, plan.fold),
        resume=progress,
    ):
        progress = done.progress
        if done.number <= 10 or done.number % 10 == 0:
            history.add(done)
        yield Tick(done.number, None)
    if progress is None:
        raise InputError(f"run {plan.key} has no round to run; give at least 1")
    write_result(folder, _result(config, plan, federation, progress, history.seconds))


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model together with the features that it was trained on."""

    config: SyntheticConfig
    model: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits for x."""
        logits: Tensor = self.model(features_of(self.config, x).to(self.config.device))
        return logits.cpu()


def _result(
    config: SyntheticConfig,
    plan: RunPlan,
    federation: InProcessFederation,
    progress: Progress[Any],
    seconds: float,
) -> RunResult:
    """Evaluate the three iterates of a finished run."""
    risks = {
        which: expected_risks(
            Predictor(config, federation.model(progress.iterates.parameters(which)))
        )
        for which in Iterate
    }
    state = progress.state
    return RunResult(
        setting=plan.setting,
        method=plan.method.name,
        fold=plan.fold,
        rounds=progress.round,
        gradient_evaluations=progress.gradient_evaluations,
        seconds=round(seconds, 1),
        shown=plan.method.output,
        risks=risks,
        step_factor=state.step_factor if isinstance(state, QFedAvgState) else None,
    )


def write_result(folder: Path, result: RunResult) -> None:
    """Write a finished run's result."""
    content = asdict(result) | {
        "shown": result.shown.value,
        "risks": {which.value: asdict(risks) for which, risks in result.risks.items()},
    }
    write_json(folder / "result.json", content)


def read_result(folder: Path) -> RunResult | None:
    """Read a finished run's result; None if the run is not finished."""
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        risks = {Iterate(which): GroupRisks(**r) for which, r in content.pop("risks").items()}
        return RunResult(shown=Iterate(content.pop("shown")), risks=risks, **content)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged; remove it to have that run finished again") from error
