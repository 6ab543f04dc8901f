"""A study that takes no time: two groups, a linear model, few rows."""

from fedminmax.studies.study import Selection
from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy, plan_runs

CONFIG = SyntheticConfig(
    rows=80,
    rounds=30,
    local_rounds=4,
    holders=4,
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
PLANS = plan_runs(
    CONFIG,
    Selection(["ESG", "SSG", "centralized"], ["fedavg", "fedminmax", "centralized"], [0]),
)
