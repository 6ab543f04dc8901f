"""Parameter counts and output shapes of the paper's models, counted by hand.

A layer from m to n has (m + 1) n parameters, a 3x3 convolution from c to d channels (9 c + 1) d.
Two 2x2 poolings turn 28 x 28 into 7 x 7.

A mixture as one model: its predictions, its random answers, its file.
"""

import io

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import Mixture, cnn, linear, mixture_with, mlp
from fedminmax.core.task import Task
from tests.complaints import complaint_of


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (linear(3, 2), 4 * 2),
        (mlp(1, 2), 2 * 512 + 3 * 513 * 512 + 513 * 2),
        (mlp(5, 3, (4,)), 6 * 4 + 5 * 3),
        (mlp(5, 3, ()), 6 * 3),
        (cnn(), (9 + 1) * 16 + (9 * 16 + 1) * 32 + (7 * 7 * 32 + 1) * 10),
        (cnn((3, 8, 12), 4, (2, 5)), (27 + 1) * 2 + (18 + 1) * 5 + (2 * 3 * 5 + 1) * 4),
    ],
)
def test_number_of_parameters(model: nn.Module, expected: int) -> None:
    assert size(model) == expected


@pytest.mark.parametrize(
    ("model", "image", "outputs"),
    [
        (linear(3, 2), (3,), 2),
        (mlp(1, 2), (1,), 2),
        (cnn(), (1, 28, 28), 10),
        (cnn((3, 9, 13), 4, (2, 5)), (3, 9, 13), 4),
    ],
)
def test_outputs_are_one_row_per_example(
    model: nn.Module, image: tuple[int, ...], outputs: int
) -> None:
    assert model(torch.zeros(6, *image)).shape == (6, outputs)


def test_the_mlp_is_not_linear() -> None:
    """f(x) + f(-x) = 2 f(0) for every affine map; ReLU between the layers breaks it."""
    torch.manual_seed(0)
    model = mlp(1, 1, (8, 8))
    x = torch.tensor([[1.0]])
    with torch.no_grad():
        assert abs(float(model(x) + model(-x) - 2 * model(0 * x))) > 1e-3


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (linear(2, 2), (5, 2)),
        (mlp(2, 2, (3,)), (5, 2)),
        (cnn((1, 4, 4), 2, (2, 2)), (5, 1, 4, 4)),
    ],
)
def test_a_row_is_predicted_alike_alone_and_in_company(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    """No batch statistics: Lemma 2 needs each row's loss to depend on that row only."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x)[:1], model(x[:1]))


CLASSIFIER = Task(linear(3, 4).double(), brier_loss)


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def logits_of(member: Tensor, x: Tensor) -> Tensor:
    """The linear classifier written out: weights class by class, then biases."""
    return x @ member[:12].view(4, 3).T + member[12:]


MEMBERS, X = drawn(5, 16, seed=1, scale=2.0), drawn(30, 3, seed=2)
Y = torch.arange(30) % 4


def test_a_classifier_averages_probabilities() -> None:
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    each = torch.stack([torch.softmax(logits_of(member, X), dim=1) for member in MEMBERS])
    torch.testing.assert_close(torch.softmax(mixture(X), dim=1), each.mean(dim=0))
    torch.testing.assert_close(mixture(X), each.mean(dim=0).log())
    averaged_logits = torch.stack([logits_of(member, X) for member in MEMBERS]).mean(dim=0)
    assert float((torch.softmax(averaged_logits, dim=1) - each.mean(dim=0)).abs().max()) > 0.05


def test_confident_members_do_not_overflow() -> None:
    mixture = mixture_with(CLASSIFIER, drawn(3, 16, scale=1e4), classifies=True)
    outputs = mixture(X)
    assert bool(torch.isfinite(torch.softmax(outputs, dim=1)).all())
    torch.testing.assert_close(
        torch.softmax(outputs, dim=1).sum(dim=1), torch.ones(30, dtype=torch.float64)
    )


def test_regression_averages_outputs() -> None:
    task = Task(linear(3, 1).double(), squared_error_loss)
    members = drawn(4, 4, seed=3)
    mixture = mixture_with(task, members, classifies=False)
    each = torch.stack([X @ member[:3, None] + member[3] for member in members])
    torch.testing.assert_close(mixture(X), each.mean(dim=0))


@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss])
def test_averaged_predictions_lose_at_most_the_mean_of_the_members_losses(loss: object) -> None:
    """Jensen, row by row: both losses are convex in the probabilities."""
    assert callable(loss)
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    own = torch.stack([loss(logits_of(member, X), Y) for member in MEMBERS]).mean(dim=0)
    averaged = loss(mixture(X), Y)
    assert bool((averaged <= own + 1e-12).all())
    assert bool((own - averaged > 0.05).any())


def test_one_member_is_itself() -> None:
    mixture = mixture_with(CLASSIFIER, MEMBERS[:1], classifies=True)
    torch.testing.assert_close(
        torch.softmax(mixture(X), dim=1), torch.softmax(logits_of(MEMBERS[0], X), dim=1)
    )
    torch.testing.assert_close(
        mixture.draw(X, torch.Generator().manual_seed(0)), logits_of(MEMBERS[0], X)
    )


def test_every_row_gets_the_outputs_of_a_member_and_all_members_equally_often() -> None:
    """4000 rows, 5 members: counts are binomial with p = 1/5, and shares of rows in order."""
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    x = drawn(4000, 3, seed=5)
    answers = mixture.draw(x, torch.Generator().manual_seed(0))
    each = torch.stack([logits_of(member, x) for member in MEMBERS])
    matches = (each - answers).abs().amax(dim=2) < 1e-9
    assert bool((matches.sum(dim=0) == 1).all())
    spread = (4000 * 0.2 * 0.8) ** 0.5
    assert bool(((matches.sum(dim=1) - 800).abs() < 4 * spread).all())
    again = mixture.draw(x, torch.Generator().manual_seed(0))
    assert torch.equal(answers, again)
    assert not torch.equal(answers, mixture.draw(x, torch.Generator().manual_seed(1)))


def test_the_expected_loss_of_random_answers_is_the_mean_of_the_members_losses() -> None:
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    x, y = X.repeat(400, 1), Y.repeat(400)
    losses = brier_loss(mixture.draw(x, torch.Generator().manual_seed(0)), y).detach()
    each = torch.stack([brier_loss(logits_of(member, X), Y) for member in MEMBERS])
    error = float(losses.std()) / len(losses) ** 0.5
    assert abs(losses.mean().item() - each.mean().item()) < 4 * error
    assert float(each.mean() - brier_loss(mixture(X), Y).detach().mean()) > 8 * error


@pytest.mark.parametrize(
    ("task", "x"),
    [
        (Task(cnn((1, 8, 8), 3, (2, 2)).double(), brier_loss), drawn(3, 1, 8, 8)),
        (Task(mlp(3, 2, (5,)).double(), brier_loss), drawn(3, 3)),
    ],
    ids=["cnn", "mlp"],
)
def test_networks_may_have_more_members_than_rows(task: Task, x: Tensor) -> None:
    members = drawn(9, task.initial_parameters.numel(), seed=6)
    mixture = mixture_with(task, members, classifies=True)
    answers = mixture.draw(x, torch.Generator().manual_seed(0))
    assert answers.shape == mixture(x).shape


def test_saving_and_loading_gives_the_same_predictions() -> None:
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    file = io.BytesIO()
    torch.save(mixture.state_dict(), file)
    file.seek(0)
    other = mixture_with(CLASSIFIER, torch.zeros_like(MEMBERS), classifies=True)
    assert not torch.equal(other(X), mixture(X))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(X), mixture(X))


def test_a_mixture_is_ready_to_predict_and_leaves_the_task_alone() -> None:
    before = CLASSIFIER.initial_parameters.clone()
    mixture = mixture_with(CLASSIFIER, MEMBERS, classifies=True)
    assert not any(module.training for module in mixture.modules())
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.zero_()
    assert torch.equal(CLASSIFIER.initial_parameters, before)


def test_no_members_are_refused() -> None:
    message = complaint_of(lambda: Mixture([], classifies=True))
    assert "give at least one model" in message
    assert "no models" in complaint_of(
        lambda: mixture_with(CLASSIFIER, torch.zeros(0, 16), classifies=True)
    )
