"""The work of all contestants: the rows of the paper's experiments, distributed to holders."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedminmax.cli.commands.run_study import fashion_mnist
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.data.fashion_mnist import GROUP_NAMES, choose_rows
from fedminmax.data.partition import partition_equally
from fedminmax.data.synthetic import draw_synthetic
from fedminmax.federation.inprocess import InProcessFederation

CLASSES = 2
SEED = 0


@dataclass(frozen=True, eq=False)
class Workload:
    """Rows, holder after holder, and the model to start from."""

    x: Tensor
    y: Tensor
    group: Tensor
    model: nn.Sequential
    holders: int

    @property
    def rows(self) -> int:
        """Number of rows of all holders."""
        return len(self.y)

    def rows_of(self, holder: int) -> slice:
        """The positions of this holder's rows."""
        return slice(holder * self.rows // self.holders, (holder + 1) * self.rows // self.holders)


def make_workload(
    rows: int,
    holders: int,
    hidden: tuple[int, ...] = (512, 512, 512, 512),
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """The paper's synthetic rows, distributed so that each holder has both groups."""
    drawn = draw_synthetic(rows, SEED)
    order = torch.cat(partition_equally(drawn.group, holders, SEED))
    x, y, group = drawn.x[order].to(dtype), drawn.y[order], drawn.group[order]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = mlp(1, CLASSES, hidden)
    assert isinstance(model, nn.Sequential)
    return Workload(x, y, group, model.to(dtype), holders)


def make_federation(work: Workload) -> InProcessFederation:
    """Build the library's federation on this work."""
    parts = [work.rows_of(holder) for holder in range(work.holders)]
    return InProcessFederation(
        copy.deepcopy(work.model),
        brier_loss,
        [(work.x[part], work.y[part], work.group[part]) for part in parts],
    )


def make_image_workload(
    rows: int,
    holders: int,
    channels: tuple[int, int] = (16, 32),
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """FashionMNIST rows, each holder with as many groups as possible, and the CNN."""
    drawn = choose_rows(fashion_mnist(None).train, rows, SEED)
    order = torch.cat(partition_equally(drawn.group, holders, SEED))
    x, y, group = drawn.x[order].to(dtype), drawn.y[order], drawn.group[order]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = cnn((1, 28, 28), len(GROUP_NAMES), channels)
    assert isinstance(model, nn.Sequential)
    return Workload(x, y, group, model.to(dtype), holders)
