"""A safe learning rate from sums over sites: the power iteration of ``core.safe_rate``, remotely.

Every group has a direction of its own, and all of them travel in one message.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.row_limits import RowLengths
from fedminmax.core.safe_rate import (
    POWER_ITERATIONS,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
)
from fedminmax.data.tables.encoding import Encoding
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.transport import Transport, gathered
from fedminmax.federation.wire import vector_from_bytes, vector_to_bytes
from fedminmax.federation.wire_vectors import RefusedError

ROUNDING = 1e-4


def agree_on_rate(
    plan: NetworkPlan,
    encoding: Encoding,
    counts: Mapping[str, Sequence[int]],
    lengths: Mapping[str, RowLengths],
    transport: Transport,
) -> tuple[str, dict[str, str]]:
    """Return the largest learning rate that is safe for all groups, as a word, and who lied.

    A site that does not answer is left out of the sums, and of the counts that divide them.
    """
    refused: dict[str, str] = {}
    start = first_direction(len(encoding.names), torch.float64)
    directions = start.repeat(len(encoding.groups), 1)
    sizes = directions.new_ones(len(encoding.groups))
    for _ in range(POWER_ITERATIONS):
        directions = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-300)
        sums = torch.zeros_like(directions)
        rows = torch.zeros(len(directions), dtype=torch.float64)
        words = {"directions": vector_to_bytes(directions.flatten())}
        asked = tuple(site for site in counts if site not in refused)
        answers = gathered(transport(asked, "curvature", words))
        for site in counts:
            if site not in answers.messages:
                continue
            try:
                own = vector_from_bytes(answers.messages[site], directions.flatten(), site)
                _check_curvature(own.reshape(sums.shape), directions, lengths[site], site)
            except RefusedError as error:
                refused[site] = str(error)
                continue
            sums += own.reshape(sums.shape)
            rows += torch.tensor(counts[site], dtype=torch.float64)
        # Rows have a 1 appended, so that sums of nothing but 0 are of no rows.
        if not bool(sums.any()):
            reasons = "; ".join([*answers.failures.values(), *refused.values()])
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
    """Refuse sums of x (x . v) that no rows of this length have.

    With M the sum of x x^T over a group's rows, |M v| <= tr M for |v| = 1, and the traces of all
    groups sum to the squared length of the rows; M has no negative eigenvalue.
    """
    most = lengths.rows**2
    curved = (own * directions).sum(dim=1)
    too_long = float(own.norm(dim=1).sum()) > most * (1.0 + ROUNDING)
    if too_long or bool((own.square().sum(dim=1) > most * (curved + ROUNDING * most)).any()):
        raise RefusedError(f"{site} sent a curvature that its rows cannot have; refused")
