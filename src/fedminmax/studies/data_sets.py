"""The data sets of studies: the paper's synthetic rows, and Adult.

Adult: a logistic model over many sites, with sex x race as groups. Papadaki et al. 2021 do not use
it, so model, rates and rounds are ours (experiments/adult says how they were chosen). All 32,561
training rows are used, in the paper's three settings. The groups' sizes differ by a factor of 176;
here the settings mean:

- ESG: every site has its share of every group, equal up to one row;
- PSG: half of the sites have the five groups of women, the other half those of men;
- SSG: every group has the same number of sites (4 of 40), whatever its size: on average each has
  27 rows of the smallest group, or 4,794 of the largest.
"""

from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.core.models import linear, mlp
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.data import synthetic
from fedminmax.data.adult import CLASS_NAMES, Adult
from fedminmax.studies.scores import GroupScores, score_by_group
from fedminmax.studies.study import Study, StudyConfig


def adult_study(config: StudyConfig, data: Adult) -> Study:
    """Return the study on all training rows; test risks are Brier, whatever the loss."""
    groups = data.group_names
    return Study(
        config,
        groups,
        rows_of_fold=lambda _fold, _seed: data.train,
        new_model=lambda: linear(len(data.feature_names), len(CLASS_NAMES)),
        scores=lambda model: score_by_group(model, data.test, len(groups)),
    )


def synthetic_study(config: StudyConfig) -> Study:
    """Return the study with the paper's network, or with a linear model of the side of 0."""

    def scores(model: nn.Module) -> GroupScores:
        predictor = Predictor(config, model)
        risks, rates = synthetic.expected_risks(predictor), synthetic.expected_rates(predictor)
        return GroupScores((risks.group_0, risks.group_1), *astuple(rates))

    def rows_of_fold(fold: int, seed: int) -> Examples:
        rows = fold_rows(config, fold, seed)
        return Examples(features_of(config, rows.x), rows.y, rows.group)

    return Study(
        config,
        synthetic.GROUP_NAMES,
        rows_of_fold=rows_of_fold,
        new_model=lambda: mlp(1, 2, config.widths) if config.network else linear(2, 2),
        scores=scores,
    )


def fold_rows(config: StudyConfig, fold: int, seed: int) -> Examples:
    """Return the training rows of a fold.

    With seeds, each fold draws its own rows; with cross-validation, all folds share one draw and
    each omits its own part. The test risk is an exact expectation in both cases.
    """
    if config.folds_by == "seeds":
        return synthetic.draw_synthetic(config.rows, seed)
    everything = synthetic.draw_synthetic(config.rows, config.seed)
    order = numpy_stream(config.seed, Purpose.FOLDS).permutation(config.rows // 2)
    part = torch.from_numpy(order % config.folds_in_all).repeat(2)
    return everything.rows((part != fold).nonzero().squeeze(1))


def features_of(config: StudyConfig, x: Tensor) -> Tensor:
    """Return the model's features: x itself, or which side of 0 it is on.

    A linear model of the two sides can express the optimum exactly, and is so cheap that samples
    can be large: it separates a method's effect from that of a network or a small sample.
    """
    return x if config.network else torch.cat([x <= 0, x > 0], dim=1).float()


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model together with the features that it was trained on."""

    config: StudyConfig
    model: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits for x."""
        logits: Tensor = self.model(features_of(self.config, x).to(self.config.device))
        return logits.cpu()
