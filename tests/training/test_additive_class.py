"""Additive models in a federation: the same optimum as a dense path finds, for every partition."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fedminmax import Simulation, fit, train
from fedminmax.core.additive.model import AdditiveModel, Block, codes_with_pairs
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.losses import cross_entropy_loss, squared_error_loss
from fedminmax.methods import AFLFast, FedAvg, FedAvgFast, FedMinMax, FedMinMaxFast, QFedAvg
from fedminmax.training.additive_class import AdditiveClass, choose_class
from fedminmax.training.certify import certify
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.train import Round

RIDGE = 1e-6
BLOCKS = (Block(13, ordered=12), Block(5), Block(4))


def rows_of(outputs: int, count: int = 1500) -> Examples:
    """Three groups with curves of their own, of 60, 30 and 10% of the records."""
    generator = torch.Generator().manual_seed(11)
    chances = torch.tensor([0.6, 0.3, 0.1])
    group = torch.multinomial(chances, count, replacement=True, generator=generator)
    codes = torch.stack(
        [torch.randint(block.size, (count,), generator=generator) for block in BLOCKS], dim=1
    )
    x = codes[:, 0].double() / 6 - 1
    score = torch.sin(3 * x + group) + 0.5 * (codes[:, 1] == 2) - 0.4 * group
    noise = torch.randn(count, generator=generator).double()
    if outputs == 1:
        return Examples(codes.short(), score + noise, group)
    classes = ((score + noise) * 1.2 + 0.5 * outputs).floor().clamp(0, outputs - 1).long()
    return Examples(codes.short(), classes, group)


def structure_of(outputs: int) -> LinearStructure:
    loss = "squared_error" if outputs == 1 else "cross_entropy"
    return LinearStructure(outputs, 22, intercept=True, loss=loss, ridge=RIDGE, coded=True)


def prepared(rows: Examples, outputs: int, pairs: int = 1) -> tuple[AdditiveModel, AdditiveClass]:
    chosen = choose_class([rows], structure_of(outputs), BLOCKS, max_pairs=pairs)
    model = AdditiveModel(outputs, chosen.blocks, records=len(rows), ridge=RIDGE)
    return model.load_effects(chosen.effects, chosen.intercepts), chosen


def federation(
    model: nn.Module, outputs: int, parts: Sequence[Examples], x: Sequence[Tensor]
) -> Simulation:
    loss = squared_error_loss if outputs == 1 else cross_entropy_loss
    sites = [(own, rows.y, rows.group) for own, rows in zip(x, parts, strict=True)]
    return Simulation(model, loss, sites, ridge=RIDGE)


def additive_federation(outputs: int, parts: int = 1) -> Simulation:
    rows = rows_of(outputs)
    model, chosen = prepared(rows, outputs)
    order = torch.argsort(rows.x[:, 0].long(), stable=True)
    split = [rows.rows(order[part::parts]) for part in range(parts)]
    codes = [codes_with_pairs(part.x, chosen.pairs) for part in split]
    return federation(model, outputs, split, codes)


@pytest.mark.parametrize("tolerance", [0.0, 0.005])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_the_optimum_is_that_of_the_dense_path(outputs: int, tolerance: float) -> None:
    rows = rows_of(outputs)
    model, chosen = prepared(rows, outputs)
    codes = codes_with_pairs(rows.x, chosen.pairs)
    indicators = torch.cat(
        [
            nn.functional.one_hot(codes[:, number].long(), block.size)
            for number, block in enumerate(chosen.blocks)
        ],
        dim=1,
    )
    dense = model.design.transformed(indicators.double())
    linear = nn.Linear(dense.shape[1], outputs, dtype=torch.float64)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    method = FedMinMaxFast(optimality_gap=1e-5, tolerance=tolerance)
    expected = fit(federation(linear, outputs, [rows], [dense]), method, rounds=60).certificate
    proved = fit(federation(model, outputs, [rows], [codes]), method, rounds=60).certificate
    assert expected is not None
    assert proved is not None
    assert proved.gap <= 1e-5
    # The limits of both depend on how close they came to the lowest worst risk.
    assert proved.upper == pytest.approx(expected.upper, rel=max(2e-5, 0.25 * tolerance))
    assert proved.lower <= expected.upper
    assert expected.lower <= proved.upper
    assert (proved.mean is None) == (tolerance == 0.0)
    first, second = sorted((proved, expected), key=lambda own: own.limit or 0.0)
    if first.mean and second.min_mean:
        # What the second says of all models within its limit is true of the first.
        assert second.min_mean <= first.mean <= second.min_mean * (1 + 10.0 * 0.25 * tolerance)


def test_every_partition_gives_the_same_model() -> None:
    one, four = (fit(additive_federation(2, parts), FedMinMaxFast(), rounds=30) for parts in (1, 4))
    assert one.number == four.number
    assert torch.allclose(one.parameters(), four.parameters(), rtol=1e-9, atol=1e-9)


def test_a_run_goes_on_to_the_bit(tmp_path) -> None:  # type: ignore[no-untyped-def]
    own = additive_federation(2, 3)
    method = FedMinMaxFast()
    *_, last = train(own, method, rounds=8)
    first = list(train_resumably(tmp_path, own, method, rounds=2))
    rest = list(train_resumably(tmp_path, own, method, rounds=8))
    assert len(first) == 2
    assert torch.equal(rest[-1].parameters(), last.parameters())


def test_the_mean_fit_is_where_preparation_ended() -> None:
    own = additive_federation(2)
    done = fit(own, FedAvgFast(), rounds=30)
    assert done.number <= 5
    models = [own.model(theta) for theta in (own.initial_parameters, done.parameters())]
    before, after = (model.effects for model in models if isinstance(model, AdditiveModel))
    assert float((before - after).detach().abs().max()) < 0.1


@pytest.mark.parametrize(
    "method", [FedMinMax(), FedAvg(), QFedAvg(q=1.0), AFLFast(), FedMinMaxFast()]
)
def test_other_methods_train_it(method) -> None:  # type: ignore[no-untyped-def]
    own = additive_federation(2, 3)
    rounds: list[Round] = list(train(own, method, rounds=6))  # type: ignore[type-arg]
    total = rounds[-1].total
    assert float(total.group_loss.sum() / total.group_count.sum()) < math.log(2.0)
    proved = certify(own, rounds[-1].parameters())
    assert 0.0 < proved.lower <= proved.upper


def test_absent_sites_do_not_spoil_it() -> None:
    own = additive_federation(2, 4)
    optimum = fit(own, FedMinMaxFast(), rounds=30)
    assert optimum.certificate is not None
    done = fit(own, FedMinMaxFast(), rounds=60, participation=0.5)
    proved = certify(own, done.parameters())
    assert proved.upper <= 1.05 * optimum.certificate.upper
