"""A study that takes no time: two groups, a linear model, few rows."""

from experiments.paper.plans import PaperSettings, Selection
from experiments.paper.synthetic import synthetic_plans
from fedminmax.studies.study import Length, RunPlan, StudyConfig, synthetic_study

CONFIG = StudyConfig(rows=80, sites=4, model="sides")
SETTINGS = PaperSettings(
    learning_rate=0.1, adversary_rate=0.1, min_weight=0.0, epochs=2, batch_size=10
)
STUDY = synthetic_study(CONFIG)
METHODS = ["fedavg", "fedminmax", "centralized"]


def plans_up_to(rounds: int, local_rounds: int) -> list[RunPlan]:
    """All runs, up to these rounds."""
    length = Length(rounds, local_rounds)
    selection = Selection(["ESG", "SSG", "centralized"], METHODS, [0], length)
    return synthetic_plans(CONFIG, SETTINGS, selection)


PLANS = plans_up_to(30, 4)
