"""The work of all contestants: the rows of the paper's experiments, distributed to sites."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from experiments.paper.fashion_mnist import GROUP_NAMES, choose_rows, fashion_mnist
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.data.partition import partition_equally
from fedminmax.data.synthetic import draw_synthetic
from fedminmax.training.simulation import Simulation

CLASSES = 2
SEED = 0


@dataclass(frozen=True, eq=False)
class Workload:
    """Rows, site after site, and the model to start from."""

    x: Tensor
    y: Tensor
    group: Tensor
    model: nn.Sequential
    sites: int

    @property
    def rows(self) -> int:
        """Number of rows of all sites."""
        return len(self.y)

    def rows_of(self, site: int) -> slice:
        """The positions of this site's rows."""
        return slice(site * self.rows // self.sites, (site + 1) * self.rows // self.sites)


def make_workload(
    rows: int,
    sites: int,
    hidden: tuple[int, ...] = (512, 512, 512, 512),
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """The paper's synthetic rows, distributed so that each site has both groups."""
    drawn = draw_synthetic(rows, SEED)
    order = torch.cat(partition_equally(drawn.group, sites, SEED))
    x, y, group = drawn.x[order].to(dtype), drawn.y[order], drawn.group[order]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = mlp(1, CLASSES, hidden)
    assert isinstance(model, nn.Sequential)
    return Workload(x, y, group, model.to(dtype), sites)


def make_federation(work: Workload) -> Simulation:
    """Build the library's federation on this work."""
    parts = [work.rows_of(site) for site in range(work.sites)]
    return Simulation(
        copy.deepcopy(work.model),
        brier_loss,
        [(work.x[part], work.y[part], work.group[part]) for part in parts],
    )


def make_image_workload(
    rows: int,
    sites: int,
    channels: tuple[int, int] = (16, 32),
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """FashionMNIST rows, each site with as many groups as possible, and the CNN."""
    drawn = choose_rows(fashion_mnist(None).train, rows, SEED)
    order = torch.cat(partition_equally(drawn.group, sites, SEED))
    x, y, group = drawn.x[order].to(dtype), drawn.y[order], drawn.group[order]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = cnn((1, 28, 28), len(GROUP_NAMES), channels)
    assert isinstance(model, nn.Sequential)
    return Workload(x, y, group, model.to(dtype), sites)
