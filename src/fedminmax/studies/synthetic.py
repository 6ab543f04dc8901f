"""The study behind the paper's Table 1: which runs there are, and how one is set up."""

from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn

from fedminmax.core.devices import usable_device
from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear, mlp
from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed, torch_seeded
from fedminmax.data.synthetic import GROUP_NAMES, draw_synthetic, expected_rates, expected_risks
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.methods.afl import AFL
from fedminmax.methods.afl_fast import AFLFast
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedavg_fast import FedAvgFast
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.report.run_result import GroupScores
from fedminmax.studies.study import (
    CENTRALIZED,
    RunPlan,
    Selection,
    StudyMethod,
    plan_runs,
    rows_of_holders,
)


@dataclass(frozen=True)
class SyntheticConfig:
    """Everything that decides a run's numbers; a folder holds runs of one configuration."""

    rows: int
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

    @property
    def network(self) -> bool:
        """Whether the model is the paper's network, and not linear."""
        return self.model == "mlp"


@dataclass(frozen=True)
class SyntheticStudy:
    """The study with this configuration."""

    config: SyntheticConfig

    def fold_seed(self, fold: int) -> int:
        """Return the seed of a fold's rows (by seeds), partition and initialisation."""
        return stream_seed(self.config.seed, Purpose.FOLDS, fold)

    def federation(
        self, plan: RunPlan, precision: torch.dtype = torch.float32
    ) -> InProcessFederation:
        """Draw the fold's rows and model and hand the rows to the holders."""
        config, seed = self.config, self.fold_seed(plan.fold)
        rows = fold_rows(self, plan.fold)
        with torch_seeded(seed, Purpose.INITIALISATION):
            model = mlp(1, 2, config.hidden) if config.network else linear(2, 2)
        parts = rows_of_holders(plan.setting, rows.group, config.holders, seed)
        model.to(usable_device(config.device), precision)
        x = features_of(config, rows.x)
        holders = [(x[part], rows.y[part], rows.group[part]) for part in parts]
        return InProcessFederation(
            model,
            brier_loss,
            holders,
            group_names=GROUP_NAMES,
            validation=plan.validation,
            seed=seed,
        )

    def scores(self, model: nn.Module) -> GroupScores:
        """Return the expected risks and rates of a trained model."""
        predictor = Predictor(self.config, model)
        risks, rates = expected_risks(predictor), expected_rates(predictor)
        return GroupScores((risks.group_0, risks.group_1), *astuple(rates))


def methods_of(config: SyntheticConfig) -> dict[str, StudyMethod]:
    """Return the methods of the table by their names on the command line."""
    rate, adversary = config.learning_rate, config.adversary_rate
    local = (config.epochs, config.batch_size)
    return {
        "afl": AFL(rate, adversary),
        "fedavg": FedAvg(rate, *local),
        "q-fedavg-0.2": QFedAvg(0.2, rate, *local),
        "q-fedavg-5": QFedAvg(5.0, rate, *local),
        "fedminmax": FedMinMax(rate, adversary, config.epsilon),
        "afl-fast": AFLFast(),
        "fedavg-fast": FedAvgFast(),
        "fedminmax-fast": FedMinMaxFast(config.epsilon),
        CENTRALIZED: FedMinMax(rate, adversary, config.epsilon),
    }


def plans_of(config: SyntheticConfig, selection: Selection) -> list[RunPlan]:
    """List the runs of this study."""
    return plan_runs(selection, methods_of(config), rows=config.rows, network=config.network)


def fold_rows(study: SyntheticStudy, fold: int) -> Examples:
    """Return the training rows of a fold.

    By seeds, each fold draws its own rows; by cross-validation, all folds share one draw and each
    leaves out its own part. The test risk is an exact expectation in both cases.
    """
    config = study.config
    if config.folds_by == "seeds":
        return draw_synthetic(config.rows, study.fold_seed(fold))
    everything = draw_synthetic(config.rows, config.seed)
    order = numpy_stream(config.seed, Purpose.FOLDS).permutation(config.rows // 2)
    part = torch.from_numpy(order % config.folds_in_all).repeat(2)
    return everything.rows((part != fold).nonzero().squeeze(1))


def features_of(config: SyntheticConfig, x: Tensor) -> Tensor:
    """What the model sees: x itself, or on which side of 0 it lies.

    A linear model of the two sides can express the optimum exactly, and is so cheap that samples
    can be large: it separates what a method does from what a network or a small sample adds.
    """
    return x if config.network else torch.cat([x <= 0, x > 0], dim=1).float()


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model together with the features that it was trained on."""

    config: SyntheticConfig
    model: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits for x."""
        logits: Tensor = self.model(features_of(self.config, x).to(self.config.device))
        return logits.cpu()
