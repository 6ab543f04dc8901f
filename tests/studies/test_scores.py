"""Scores by group against a loop over rows, and against chance."""

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.studies.scores import score_by_group


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
