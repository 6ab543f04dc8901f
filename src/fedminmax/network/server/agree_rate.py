"""How sites agree on a learning rate that the plan leaves open.

It comes from the power iteration of ``core.bounds``, with sums over sites. Every group has a
direction of its own, and all of them travel in one message.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedminmax.core.bounds import (
    POWER_ITERATIONS,
    RowLengths,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
)
from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.data.tables.encoding import Encoding
from fedminmax.network.server.sites import Sites
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan

ROUNDING = 1e-4


def agree_on_rate(
    plan: NetworkPlan,
    encoding: Encoding,
    counts: Mapping[str, Sequence[int]],
    lengths: Mapping[str, RowLengths],
    sites: Sites,
) -> tuple[str, dict[str, str]]:
    """Return the largest learning rate that is safe for all groups, as text, and refused sites.

    A site that does not reply is skipped in the sums, and in the counts that divide them.
    """
    refused: dict[str, str] = {}
    start = first_direction(len(encoding.names), torch.float64)
    directions = start.repeat(len(encoding.groups), 1)
    sizes = directions.new_ones(len(encoding.groups))
    for _ in range(POWER_ITERATIONS):
        directions = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-300)
        sums = torch.zeros_like(directions)
        rows = torch.zeros(len(directions), dtype=torch.float64)
        received = sites.curvature(directions, [site for site in counts if site not in refused])
        refused |= received.unreadable
        for site, along in received.records.items():
            try:
                _check_curvature(along, directions, lengths[site], site)
            except RefusedError as error:
                refused[site] = str(error)
                continue
            sums += along
            rows += torch.tensor(counts[site], dtype=torch.float64)
        # Rows have a 1 appended, so sums of 0 mean that there are no rows.
        if not bool(sums.any()):
            reasons = "; ".join([*received.failures.values(), *refused.values()])
            raise InputError(
                f"no site helped to find a safe learning rate ({reasons}); set learning_rate in "
                "[method]"
            )
        directions = sums / rows.clamp(min=1.0)[:, None]
        sizes = directions.norm(dim=1)
    loss = LOSSES_BY_NAME[plan.model.loss]
    rate = rate_for_eigenvalue(
        loss, float(sizes.max()), linear=not plan.model.hidden, ridge=plan.model.ridge
    )
    return rounded_rate(rate), refused


def _check_curvature(own: Tensor, directions: Tensor, lengths: RowLengths, site: str) -> None:
    """Refuse sums of x (x . v) that are impossible for rows of this length.

    With M the sum of x x^T over a group's rows, |M v| <= tr M for |v| = 1, and the traces of all
    groups sum to the squared length of the rows; M has no negative eigenvalue.
    """
    most = lengths.rows**2
    curved = (own * directions).sum(dim=1)
    too_long = float(own.norm(dim=1).sum()) > most * (1.0 + ROUNDING)
    if too_long or bool((own.square().sum(dim=1) > most * (curved + ROUNDING * most)).any()):
        raise RefusedError(f"{site} sent a curvature that is impossible for its rows; refused")
