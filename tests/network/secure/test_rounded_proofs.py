"""A proof from masked totals stays true although they are rounded to whole numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.losses import Loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.messages import Order
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.fixed_point import Kind, Layout, Packed, pack, unpack
from fedminmax.network.secure.layouts import reply_layout
from fedminmax.network.secure.totals import rounding_of
from fedminmax.network.wire.sections import sections_of_sums, sums_of
from fedminmax.training.certify import certify
from fedminmax.training.protocol import Replies
from fedminmax.training.replies import NOTHING
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

SITES = 3
PROOF = FedMinMaxFast(optimality_gap=0.0)


class MaskedFederation(Simulation):
    """Adds up replies of sites as masked totals are: in whole numbers.

    ``lost_bits`` makes the numbers coarser than a run's own layout would.
    """

    lost_bits = 0

    def ask(
        self, method: Any, order: Order, participants: Sequence[int], kept: torch.Tensor = NOTHING
    ) -> Replies:
        replies = [
            super(MaskedFederation, self).ask(method, order, [own], kept).total
            for own in participants
        ]
        rows = self.census.counts.sum()
        model = self.model(order.parameters)
        assert isinstance(model, nn.Linear)
        limits = row_limits([model], order.parameters, self._task.loss, self._task.ridge)
        lengths = self.census.row_lengths
        assert lengths is not None
        everyone = Sender(
            0,
            torch.full((self.census.groups,), int(rows)),
            sites=1,
            limits=limits,
            lengths=RowLengths(float(lengths.norm()), 100.0),
            is_total=True,
        )
        layout = reply_layout(method, order, everyone, SITES)
        layout = Layout(
            tuple(
                replace(own, exponent=own.exponent - self.lost_bits)
                if own.kind is Kind.FIXED and own.name != "scales"
                else own
                for own in layout.sections
            )
        )
        packed = [pack(layout, sections_of_sums(reply), SITES) for reply in replies]
        words = np.asarray(np.sum([own.words for own in packed], axis=0, dtype=np.uint64))
        total = sums_of(unpack(layout, Packed(words, ()), SITES))
        return Replies(replace(total, rounding=rounding_of(layout, SITES)))


def sites(seed: int, loss: Loss) -> list[tuple[torch.Tensor, ...]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, 3))
    pattern = rng.normal(size=(3, 3))
    group = rng.integers(0, 3, 150)
    target = (x * pattern[group]).sum(axis=1) + rng.logistic(size=150)
    y = target if loss is squared_error_loss else (target > 0).astype(np.int64)
    parts = (torch.from_numpy(own) for own in (x, y, group))
    return [tuple(own) for own in zip(*(torch.chunk(part, SITES) for part in parts), strict=True)]


@pytest.mark.parametrize("lost_bits", [0, 16, 24])
@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
def test_no_bound_is_above_the_optimum(loss: Loss, lost_bits: int) -> None:
    """The optimum is between the bounds of sums that were not rounded."""
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Linear(3, 1 if loss is squared_error_loss else 2).double()
        ridge = 10.0 ** -(1 + seed)
        plain = Simulation(model, loss, sites(seed, loss), ridge=ridge)
        masked = MaskedFederation(model, loss, sites(seed, loss), ridge=ridge)
        masked.lost_bits = lost_bits
        *_, best = train(plain, PROOF, rounds=15)
        assert best.certificate is not None
        for done in train(masked, PROOF, rounds=12):
            if done.certificate is not None:
                assert done.certificate.lower <= best.certificate.upper
                assert done.certificate.upper >= best.certificate.lower
        again = certify(masked, best.members[0])
        assert again.lower <= best.certificate.upper
        assert again.upper >= best.certificate.lower
        if lost_bits == 0:
            assert again.gap < 1e-5
