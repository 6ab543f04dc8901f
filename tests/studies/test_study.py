"""The study on Adult: every training row with a site, one trajectory, risks of the test rows.

Which methods a comparison runs in which setting.

Scores by group against a loop over rows, and against chance.
"""

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.data.adult import Adult, load_adult
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.studies.comparison import lines_of_table, parse_entry
from fedminmax.studies.scores import score_by_group
from fedminmax.studies.study import CENTRALIZED, RunPlan, Study, StudyConfig, adult_study
from fedminmax.training.train import train
from tests.complaints import complaint_of

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


def lines(words: str, settings: str) -> list[tuple[str, str]]:
    entries = [parse_entry(word, CARDS, {}) for word in words.split(",")]
    return [(name, entry.label) for name, entry in lines_of_table(entries, settings.split(","))]


def test_a_method_without_a_setting_is_run_in_all_that_are_asked_for() -> None:
    assert lines("fedminmax,afl", "ESG,SSG") == [
        ("ESG", "fedminmax"),
        ("ESG", "afl"),
        ("SSG", "fedminmax"),
        ("SSG", "afl"),
    ]


def test_a_method_with_a_setting_is_run_there_alone() -> None:
    assert lines("afl@SSG,fedminmax@centralized,fedavg:epochs=2", "ESG,SSG") == [
        ("ESG", "fedavg:epochs=2"),
        ("SSG", "afl"),
        ("SSG", "fedavg:epochs=2"),
        ("centralized", "fedminmax"),
    ]


def test_a_line_that_two_words_ask_for_is_run_once() -> None:
    assert lines("fedminmax,fedminmax@ESG", "ESG") == [("ESG", "fedminmax")]


@pytest.mark.parametrize("setting", ["XSG", ""])
def test_an_unknown_setting_is_named(setting: str) -> None:
    message = complaint_of(lambda: parse_entry(f"fedminmax@{setting}", CARDS, {}))
    assert f"setting '{setting}'" in message
    assert "centralized" in message


def test_scores_are_means_over_each_groups_rows() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    x, y = torch.randn(250, 4), torch.randint(0, 3, (250,))
    group = torch.randint(0, 5, (250,))
    scores = score_by_group(model, Examples(x, y, group), 5)
    for a in range(5):
        risks, hits = [], []
        for row in range(250):
            if int(group[row]) == a:
                p = torch.softmax(model(x[row]), dim=0).detach().double()
                truth = torch.zeros(3, dtype=torch.float64)
                truth[int(y[row])] = 1.0
                risks.append(float(((p - truth) ** 2).sum()))
                hits.append(float(int(p.argmax()) == int(y[row])))
        assert scores.risks[a] == pytest.approx(sum(risks) / len(risks), rel=1e-5)
        assert scores.accuracies[a] == pytest.approx(sum(hits) / len(hits))


def test_the_callers_model_is_left_as_it_is() -> None:
    convolution = nn.Conv2d(2, 3, 3)
    model = nn.Sequential(convolution, nn.Flatten(), nn.Linear(3, 2))
    labels = torch.zeros(4, dtype=torch.int64)
    before = convolution.weight.stride()
    score_by_group(model, Examples(torch.randn(4, 2, 3, 3), labels, labels), 1)
    assert convolution.weight.stride() == before
