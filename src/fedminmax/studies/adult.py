"""The study on Adult: a logistic model over many sites, with sex x race as groups.

Papadaki et al. 2021 do not use Adult, so model, rates and rounds are ours (experiments/adult says
how they were chosen). All 32,561 training rows are used, in the paper's three settings. The groups'
sizes differ by a factor of 176; here the settings mean:

- ESG: every site has its share of every group, equal up to one row;
- PSG: half of the sites have the five groups of women, the other half those of men;
- SSG: every group has the same number of sites (4 of 40), whatever its size: on average each has
  27 rows of the smallest group, or 4,794 of the largest.
"""

from fedminmax.core.models import linear
from fedminmax.data.adult import CLASS_NAMES, Adult
from fedminmax.studies.config import StudyConfig
from fedminmax.studies.scores import score_by_group
from fedminmax.studies.study import Study


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
