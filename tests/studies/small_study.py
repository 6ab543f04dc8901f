"""A study that takes no time: two groups, a linear model, few rows."""

from fedminmax.studies.study import Length, RunPlan, Selection
from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy, synthetic_plans

CONFIG = SyntheticConfig(
    rows=80,
    sites=4,
    model="sides",
    hidden=(),
    learning_rate=0.1,
    adversary_rate=0.1,
    epsilon=0.0,
    epochs=2,
    batch_size=10,
    folds_by="seeds",
    folds_in_all=0,
    seed=0,
    device="cpu",
)
STUDY = SyntheticStudy(CONFIG)
METHODS = ["fedavg", "fedminmax", "centralized"]


def plans_up_to(rounds: int, local_rounds: int) -> list[RunPlan]:
    """All runs, up to these rounds."""
    length = Length(rounds, local_rounds)
    return synthetic_plans(CONFIG, Selection(["ESG", "SSG", "centralized"], METHODS, [0], length))


PLANS = plans_up_to(30, 4)
