"""Histograms give the sums of a linear model of indicators, and autograd's gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel, Block, Pair
from fedminmax.core.additive.sums import coded_bends, coded_group_sums, curvature_places
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure, linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.one_step import linear_group_sums
from fedminmax.core.task import Task

PLACES, NODES = (0.0, 1.0, 1.5, 4.0, 5.0), (0, 1, 4)
BLOCKS = (
    Block(5, ordered=4, smoothing=3.0),
    Block(3, smoothing=1.0),
    Block(6, ordered=5, smoothing=2.0, positions=PLACES, nodes=NODES),
    Block(2, smoothing=0.5),
    Block(6, ordered=5, smoothing=0.1, positions=PLACES, nodes=NODES),
)
GROUPS, RIDGE = 3, 1e-3


def rows_of(outputs: int, count: int = 300) -> Examples:
    generator = torch.Generator().manual_seed(outputs)
    codes = [torch.randint(block.size, (count,), generator=generator) for block in BLOCKS]
    if outputs == 1:
        y: Tensor = torch.randn(count, generator=generator).double()
    else:
        y = torch.randint(outputs, (count,), generator=generator)
    group = torch.randint(GROUPS, (count,), generator=generator)
    return Examples(torch.stack(codes, dim=1).short(), y, group)


def model_and_structure(outputs: int, loss: str) -> tuple[AdditiveModel, LinearStructure]:
    model = AdditiveModel(outputs, BLOCKS, records=300, ridge=RIDGE)
    with torch.no_grad():
        model.weight.normal_(generator=torch.Generator().manual_seed(7))
    structure = linear_structure_of(Task(model, LOSSES_BY_NAME[loss], RIDGE))
    assert structure is not None
    assert structure.coded
    return model, structure


def _columns(block: Block, codes: Tensor) -> Tensor:
    """Return indicators of codes; between nodes, the shares of both in a straight line."""
    indicators = nn.functional.one_hot(codes.long(), block.size).double()
    if not block.nodes:
        return indicators
    places = np.array(block.positions)[list(block.nodes)]
    hats = [np.interp(block.positions, places, hat) for hat in np.eye(len(places))]
    lines = indicators[:, : block.ordered] @ torch.from_numpy(np.stack(hats, axis=1))
    return torch.cat([lines, indicators[:, block.ordered :]], dim=1)


CASES = [(2, "cross_entropy"), (4, "cross_entropy"), (3, "brier"), (1, "squared_error")]


@pytest.mark.parametrize(("outputs", "loss"), CASES)
def test_they_are_those_of_the_dense_path(outputs: int, loss: str) -> None:
    rows = rows_of(outputs)
    model, structure = model_and_structure(outputs, loss)
    columns = [_columns(block, rows.x[:, number]) for number, block in enumerate(BLOCKS)]
    dense = model.design.transformed(torch.cat(columns, dim=1).double())
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    expected = linear_group_sums(structure, parameters, Examples(dense, rows.y, rows.group), GROUPS)
    weights = torch.tensor([0.2, 1.0, 0.5]).double()
    sums = coded_group_sums(
        structure, model.design, parameters, rows, GROUPS, group_weights=weights
    )
    assert torch.allclose(sums.losses, expected.losses, rtol=1e-12)
    assert torch.allclose(sums.gradients, expected.gradients, atol=1e-10)
    assert torch.allclose(sums.curvature[0], weights @ expected.curvature, atol=1e-10)


@pytest.mark.parametrize(("outputs", "loss"), CASES)
def test_gradients_are_those_of_autograd(outputs: int, loss: str) -> None:
    rows = rows_of(outputs)
    model, structure = model_and_structure(outputs, loss)
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    sums = coded_group_sums(structure, model.design, parameters, rows, GROUPS)
    losses = LOSSES_BY_NAME[loss](model(rows.x), rows.y)
    for group in range(GROUPS):
        total = losses[rows.group == group].sum()
        gradient = torch.autograd.grad(total, list(model.parameters()), retain_graph=True)
        flat = torch.cat([part.flatten() for part in gradient])
        assert torch.allclose(sums.gradients[group], flat, atol=1e-9)
        assert float(sums.losses[group]) == pytest.approx(float(total.detach()))
    assert sums.curvature.shape == (1, 0)


@pytest.mark.parametrize(("outputs", "loss"), [(2, "cross_entropy"), (1, "squared_error")])
def test_bends_are_second_derivatives_in_the_effects(outputs: int, loss: str) -> None:
    rows = rows_of(outputs)
    plain = [Block(block.size, block.ordered) for block in BLOCKS]
    model = AdditiveModel(outputs, plain, records=1, ridge=0.0)
    structure = linear_structure_of(Task(model, LOSSES_BY_NAME[loss], 0.0))
    assert structure is not None
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    bends = coded_bends(structure, model.design, parameters, rows)

    def total(flat: Tensor) -> Tensor:
        weight, bias = flat[: model.weight.numel()], flat[model.weight.numel() :]
        state = {"weight": weight.reshape(outputs, -1), "bias": bias}
        outputs_there = torch.func.functional_call(model, state, (rows.x,))
        return LOSSES_BY_NAME[loss](outputs_there, rows.y).sum()

    point = parameters.requires_grad_()
    (gradient,) = torch.autograd.grad(total(point), point, create_graph=True)
    diagonal = [
        torch.autograd.grad(gradient[number], point, retain_graph=True)[0][number]
        for number in range(model.weight.numel())
    ]
    assert torch.allclose(bends.flatten(), torch.stack(diagonal), atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 2.0])
def test_curvature_is_0_where_no_record_can_change_it(smoothing: float) -> None:
    """And nowhere else, if every combination of codes has a record and codes are not mixed."""
    cells = ((0, 0, 1, 1, 2), (0, 1, 1), (0, 1, 2, 2))
    columns = [Block(5, ordered=4, smoothing=smoothing), Block(3, smoothing=smoothing), Block(4)]
    pairs = [Pair(0, 1, cells[0], cells[1]), Pair(0, 2, cells[0], cells[2])]
    pairs.append(Pair(1, 2, cells[1], (0, 0, 1, 1)))
    blocks = [*columns, *(pair.block for pair in pairs)]
    design = AdditiveModel(2, blocks, records=60, ridge=0.01).design
    codes = torch.cartesian_prod(*(torch.arange(block.size) for block in columns))
    rows = Examples(codes, codes[:, 0] % 2, torch.zeros(len(codes), dtype=torch.int64))
    structure = LinearStructure(
        2, design.columns, intercept=True, loss="cross_entropy", coded=True, ridge=0.01
    )
    parameters = torch.randn(2 * (design.columns + 1), dtype=torch.float64)
    sums = coded_group_sums(
        structure, design, parameters, rows, 1, group_weights=torch.ones(1).double(), pairs=pairs
    )
    places = curvature_places(design, pairs)
    changed = sums.curvature[0].abs() > 1e-12
    assert torch.equal(changed, places) if smoothing == 0.0 else not (changed & ~places).any()
    assert int(places.sum()) < 0.8 * len(places)
