"""The study on Adult: every training row with a site, one trajectory, risks of the test rows."""

import pytest
import torch

from fedminmax.data.adult import Adult, load_adult
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.studies.study import CENTRALIZED, RunPlan, Study, StudyConfig, adult_study
from fedminmax.training.train import train

METHOD = FedMinMax(learning_rate=1.0, adversary_rate=0.1)


@pytest.fixture(scope="module")
def data() -> Adult:
    return load_adult()


def study_of(data: Adult, loss: str = "brier") -> Study:
    return adult_study(StudyConfig(len(data.train), 40, model="linear", loss=loss), data)


def plan(setting: str) -> RunPlan:
    return RunPlan(setting, METHOD, fold=0, rounds=5, cost=5)


def test_fedminmax_is_one_trajectory_in_all_settings(data: Adult) -> None:
    """Papadaki et al. 2021, Lemma 2, with group sizes from 109 to 19,174."""
    study = study_of(data)
    ends = {}
    for setting in ("ESG", "SSG", "PSG", CENTRALIZED):
        federation = study.federation(plan(setting), torch.float64)
        assert federation.census.sites == (1 if setting == CENTRALIZED else 40)
        assert torch.equal(federation.census.counts.sum(dim=0), torch.bincount(data.train.group))
        *_, last = train(federation, METHOD, rounds=5, seed=study.fold_seed(0))
        ends[setting] = last.progress.state.parameters
    for setting in ("ESG", "SSG", "PSG"):
        torch.testing.assert_close(ends[setting], ends[CENTRALIZED], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["brier", "cross_entropy"])
def test_training_minimises_the_loss_that_was_asked_for(data: Adult, loss: str) -> None:
    study = study_of(data, loss)
    federation = study.federation(plan("SSG"), torch.float64)
    (first,) = train(federation, METHOD, rounds=1, seed=0)
    with torch.no_grad():
        logits = federation.model(federation.initial_parameters)(data.train.x.double())
    of_label = torch.softmax(logits, dim=1)[torch.arange(len(data.train)), data.train.y]
    losses = 2 * (1 - of_label) ** 2 if loss == "brier" else -of_label.log()
    expected = [float(losses[data.train.group == a].mean()) for a in range(10)]
    assert first.risks.tolist() == pytest.approx(expected, rel=1e-9)


def test_scores_are_by_group_over_the_test_rows(data: Adult) -> None:
    """A model that is sure of the lower income is wrong for every higher one, by 2 in Brier."""
    model = torch.nn.Linear(len(data.feature_names), 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([50.0, -50.0]))
    scores = study_of(data).scores(model)
    higher = [float(data.test.y[data.test.group == a].double().mean()) for a in range(10)]
    assert scores.risks == pytest.approx([2 * share for share in higher])
    assert scores.accuracies == pytest.approx([1 - share for share in higher])
    assert set(scores.positive_rates) == {0.0}
