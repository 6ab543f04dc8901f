"""The study behind the paper's Table 2 and the appendix table on FashionMNIST.

Papadaki et al. 2021, Section 6 and Appendix B. Not in the paper, and so options of ours: the
number of rounds, the CNN's channels (16 and 32) and head (one linear layer), the activation (ReLU)
and the pixels' scale (standardised by the training images' mean and deviation).
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from fedminmax.core.devices import usable_device
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn
from fedminmax.core.randomness import Purpose, stream_seed, torch_seeded
from fedminmax.data.fashion_mnist import GROUP_NAMES, FashionMnist, choose_rows
from fedminmax.data.partition import Setting
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.methods.afl import AFL
from fedminmax.methods.afl_fast import AFLFast
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedavg_fast import FedAvgFast
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.report.run_result import GroupScores
from fedminmax.report.scoring import score_by_group
from fedminmax.studies.study import (
    CENTRALIZED,
    Length,
    RoundsBetweenTests,
    RunPlan,
    Selection,
    StudyMethod,
    plan_runs,
    rows_of_holders,
)

# A test of the three iterates costs as much as two rounds over 6,000 rows.
BETWEEN_TESTS = RoundsBetweenTests(one_step=50, fast=10)


@dataclass(frozen=True)
class FashionConfig:
    """Everything that decides a run's numbers; a folder holds runs of one configuration."""

    rows: int
    holders: int
    channels: tuple[int, int]
    learning_rate: float
    adversary_rate: float
    epsilon: float
    epochs: int
    batch_size: int
    seed: int
    device: str


@dataclass(frozen=True, eq=False)
class FashionStudy:
    """The study with this configuration on these images."""

    config: FashionConfig
    data: FashionMnist = field(repr=False)

    def fold_seed(self, fold: int) -> int:
        """Return the seed of a fold's rows, partition and initialisation."""
        return stream_seed(self.config.seed, Purpose.FOLDS, fold)

    def federation(
        self, plan: RunPlan, precision: torch.dtype = torch.float32
    ) -> InProcessFederation:
        """Draw the fold's rows and model and hand the rows to the holders."""
        config, seed = self.config, self.fold_seed(plan.fold)
        rows = choose_rows(self.data.train, config.rows, seed)
        with torch_seeded(seed, Purpose.INITIALISATION):
            model = cnn((1, 28, 28), len(GROUP_NAMES), config.channels)
        model.to(usable_device(config.device), precision)
        parts = rows_of_holders(plan.setting, rows.group, config.holders, seed)
        holders = [(rows.x[part], rows.y[part], rows.group[part]) for part in parts]
        return InProcessFederation(
            model,
            brier_loss,
            holders,
            group_names=GROUP_NAMES,
            validation=plan.validation,
            seed=seed,
        )

    def scores(self, model: nn.Module) -> GroupScores:
        """Test a trained model on all 10,000 test images."""
        return score_by_group(model, self.data.test, len(GROUP_NAMES))


def methods_of(config: FashionConfig) -> dict[str, StudyMethod]:
    """Return the methods of the table by their names on the command line."""
    rate, adversary = config.learning_rate, config.adversary_rate
    return {
        "afl": AFL(rate, adversary),
        "fedavg": FedAvg(rate, config.epochs, config.batch_size),
        "fedminmax": FedMinMax(rate, adversary, config.epsilon),
        "afl-fast": AFLFast(),
        "fedavg-fast": FedAvgFast(),
        "fedminmax-fast": FedMinMaxFast(config.epsilon),
        CENTRALIZED: FedMinMax(rate, adversary, config.epsilon),
    }


def plans_of(config: FashionConfig, selection: Selection) -> list[RunPlan]:
    """List the runs of this study."""
    return plan_runs(
        selection,
        methods_of(config),
        rows=config.rows,
        network=True,
        between_tests=BETWEEN_TESTS,
    )


def plans_in(folder: Path, config: FashionConfig) -> list[RunPlan]:
    """List the runs that a study's folder has begun, also those of earlier and other calls."""
    begun = {path.name for path in (folder / "runs").glob("*-fold-*")}
    folds = sorted({int(name.rsplit("-", 1)[-1]) for name in begun})
    settings = [*(setting.value for setting in Setting), CENTRALIZED]
    everything = Selection(settings, list(methods_of(config)), folds, Length(1, 1))
    return [plan for plan in plans_of(config, everything) if plan.key in begun]
