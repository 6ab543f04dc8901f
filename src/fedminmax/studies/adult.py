"""The study on Adult: a logistic model over many sites, with sex x race as groups.

Papadaki et al. 2021 do not use Adult, so model, rates and rounds are ours (experiments/adult says
how they were chosen). All 32,561 training rows are used, in the paper's three settings. The groups'
sizes differ by a factor of 176; here the settings mean:

- ESG: every site has its share of every group, equal up to one row;
- PSG: half of the sites have the five groups of women, the other half those of men;
- SSG: every group has the same number of sites (4 of 40), whatever its size: on average each has
  27 rows of the smallest group, or 4,794 of the largest.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.models import linear
from fedminmax.core.randomness import Purpose, stream_seed, torch_seeded
from fedminmax.core.workers import usable_device
from fedminmax.data.adult import CLASS_NAMES, Adult
from fedminmax.studies.scores import GroupScores, score_by_group
from fedminmax.studies.study import RunPlan, federation_of
from fedminmax.training.simulation import Simulation


@dataclass(frozen=True)
class AdultConfig:
    """What determines a run's numbers besides its method."""

    sites: int
    include_protected: bool
    loss: str
    seed: int
    device: str


@dataclass(frozen=True, eq=False)
class AdultStudy:
    """The study with this configuration on these rows."""

    config: AdultConfig
    data: Adult = field(repr=False)

    def fold_seed(self, fold: int) -> int:
        """Return the seed of a fold's partition, initialisation and training."""
        return stream_seed(self.config.seed, Purpose.FOLDS, fold)

    def federation(self, plan: RunPlan, precision: torch.dtype = torch.float32) -> Simulation:
        """Draw the fold's model and hand all training rows to the sites."""
        config, seed, rows = self.config, self.fold_seed(plan.fold), self.data.train
        with torch_seeded(seed, Purpose.INITIALISATION):
            model = linear(len(self.data.feature_names), len(CLASS_NAMES))
        model.to(usable_device(config.device), precision)
        return federation_of(
            plan,
            model,
            LOSSES_BY_NAME[config.loss],
            (rows.x, rows.y, rows.group),
            group_names=self.data.group_names,
            sites=config.sites,
            seed=seed,
        )

    def scores(self, model: nn.Module) -> GroupScores:
        """Test a trained model on all 16,281 test rows; risks are Brier, whatever the loss."""
        return score_by_group(model, self.data.test, len(self.data.group_names))
