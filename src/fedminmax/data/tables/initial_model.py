"""The model that training starts from, for rows with a given encoding."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel, Block
from fedminmax.core.models import linear_or_mlp
from fedminmax.data.tables.encoding import Encoding


def initial_model(encoding: Encoding, hidden: Sequence[int], ridge: float) -> nn.Module:
    """Return an additive model of zeros for codes, else a linear one of zeros or a network."""
    if encoding.is_additive:
        return AdditiveModel(
            encoding.outputs, encoding.blocks, records=encoding.records, ridge=ridge
        )
    return linear_or_mlp(len(encoding.names), encoding.outputs, hidden)


def blank_row(encoding: Encoding) -> Tensor:
    """Return an encoded row of zeros."""
    if encoding.is_additive:
        return torch.zeros(len(encoding.blocks), dtype=torch.int16)
    return torch.zeros(len(encoding.names))


def model_for_predictions(encoding: Encoding, hidden: Sequence[int]) -> nn.Module:
    """Return the same for a model that is only used: the parameters of an additive one are effects.

    So its file has them, and needs no transform.
    """
    if not encoding.is_additive:
        return linear_or_mlp(len(encoding.names), encoding.outputs, hidden)
    plain = [Block(block.size, rising=block.rising) for block in encoding.blocks]
    return AdditiveModel(encoding.outputs, plain, records=1, ridge=0.0)
