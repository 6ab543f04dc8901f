"""The definition of a study: its runs, and how a run is set up and scored.

The data sets of studies: the paper's synthetic rows, and Adult.

Adult: a logistic model over many sites, with sex x race as groups. Papadaki et al. 2021 do not use
it, so model, rates and rounds are ours (experiments/adult says how they were chosen). All 32,561
training rows are used, in the paper's three settings. The groups' sizes differ by a factor of 176;
here the settings mean:

- ESG: every site has its share of every group, equal up to one row;
- PSG: half of the sites have the five groups of women, the other half those of men;
- SSG: every group has the same number of sites (4 of 40), whatever its size: on average each has
  27 rows of the smallest group, or 4,794 of the largest.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.models import linear, mlp
from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed, torch_seeded
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS
from fedminmax.core.workspace import usable_device
from fedminmax.data import synthetic
from fedminmax.data.adult import CLASS_NAMES, Adult
from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.methods.card import Pace, pace_of
from fedminmax.methods.method import AnyMethod
from fedminmax.studies.scores import GroupScores, score_by_group
from fedminmax.training.simulation import Simulation

# A table mixes methods, and so types of state; each method only gets its own.
StudyMethod = AnyMethod[Any]
# The setting of FedMinMax with one site.
CENTRALIZED = "centralized"
# The fast methods converge in 10 to 100 rounds, or choose one of them.
FAST_ROUNDS = 100


def papers_iterate(method: StudyMethod) -> Iterate:
    """Return the iterate of the method's paper: the average where our runs use the tail average.

    >>> from fedminmax.methods.fedminmax import FedMinMax
    >>> papers_iterate(FedMinMax())
    <Iterate.AVERAGE: 'average'>
    """
    return Iterate.AVERAGE if method.output is Iterate.TAIL_AVERAGE else method.output


@dataclass(frozen=True)
class StudyConfig:
    """Everything besides the methods; a folder has runs of one configuration.

    ``widths`` are those of a network's hidden layers, or the channels of its convolutions; a linear
    model has none. With ``folds_by`` "seeds" each fold has its own rows, else all
    ``folds_in_all`` are parts of one training set.
    """

    rows: int
    sites: int
    _: KW_ONLY
    model: str
    widths: tuple[int, ...] = ()
    loss: str = "brier"
    include_protected: bool = False
    folds_by: str = "seeds"
    folds_in_all: int = 0
    seed: int = 0
    device: str = "cpu"

    @property
    def network(self) -> bool:
        """Whether the model is a neural network."""
        return bool(self.widths)


@dataclass(frozen=True)
class RunPlan:
    """One run of a study.

    ``cost`` is in gradient evaluations, to which its time is proportional; test scores are
    recorded every ``rounds_between_tests`` rounds (0: only at the end). ``label`` distinguishes
    variants of a method; by default it is the method's name. ``validation`` is the share of its
    rows that each site holds out to choose the round by.
    """

    setting: str
    method: StudyMethod
    fold: int
    _: KW_ONLY
    rounds: int
    cost: int
    rounds_between_tests: int = 0
    label: str = ""
    validation: float = 0.0

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return self.label or self.method.name

    @property
    def key(self) -> str:
        """The run's folder name."""
        name = f"{self.setting} {self.title} fold {self.fold}"
        kept = (c if c.isalnum() or c == "." else "-" for c in name.lower())
        return "-".join(part for part in "".join(kept).split("-") if part)


@dataclass(frozen=True, eq=False)
class Study:
    """One configuration of an experiment: how its runs are set up and scored.

    ``rows_of_fold`` returns the training rows of a fold, given its number and its seed,
    ``new_model`` an untrained model in torch's current randomness, ``scores`` the test scores of a
    trained one.
    """

    config: StudyConfig
    group_names: tuple[str, ...]
    _: KW_ONLY
    rows_of_fold: Callable[[int, int], Examples] = field(repr=False)
    new_model: Callable[[], nn.Module] = field(repr=False)
    scores: Callable[[nn.Module], GroupScores] = field(repr=False)

    def fold_seed(self, fold: int) -> int:
        """Return the seed of a fold's rows, partition, initialisation and training."""
        return stream_seed(self.config.seed, Purpose.FOLDS, fold)

    def federation(self, plan: RunPlan, precision: torch.dtype = torch.float32) -> Simulation:
        """Draw the fold's rows and model and distribute the rows to the sites."""
        config, seed = self.config, self.fold_seed(plan.fold)
        rows = self.rows_of_fold(plan.fold, seed)
        with torch_seeded(seed, Purpose.INITIALISATION):
            model = self.new_model()
        model.to(usable_device(config.device), precision)
        parts = rows_of_sites(plan.setting, rows.group, config.sites, seed)
        return Simulation(
            model,
            LOSSES_BY_NAME[config.loss],
            [(rows.x[part], rows.y[part], rows.group[part]) for part in parts],
            group_names=self.group_names,
            validation=plan.validation,
            seed=seed,
        )


@dataclass(frozen=True)
class Length:
    """The number of rounds of one-step methods, of local methods, and of fast methods.

    The steps do not depend on it, so a later call may continue the same runs.
    """

    rounds: int
    local_rounds: int
    fast_rounds: int = FAST_ROUNDS

    def of(self, method: StudyMethod) -> int:
        """Return the number of rounds of this method."""
        by_pace = {
            Pace.ONE_STEP: self.rounds,
            Pace.LOCAL_EPOCHS: self.local_rounds,
            Pace.LOOK_AHEAD: self.fast_rounds,
        }
        return by_pace[pace_of(method)]


def cost_of(method: StudyMethod, length: Length, rows: int) -> int:
    """Return a run's approximate number of gradient evaluations."""
    return length.of(method) * rows * int(getattr(method, "epochs", 1))


def validation_share(method: StudyMethod, *, network: bool) -> float:
    """Return the share of rows that choose the round: fast methods soon overfit a network.

    The papers' methods have no validation rows, and train on all rows.
    """
    fast = pace_of(method) is Pace.LOOK_AHEAD
    return DEFAULT_SHARE_FOR_NETWORKS if fast and network else 0.0


def rows_of_sites(setting: str, group: Tensor, sites: int, seed: int) -> list[Tensor]:
    """Return each site's row positions; in the centralized setting one site has all rows."""
    if setting == CENTRALIZED:
        return [torch.arange(len(group))]
    return partition_by_setting(Setting(setting), group, sites, seed)


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
