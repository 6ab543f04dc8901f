"""A safe learning rate from sums over sites: the power iteration of ``core.safe_rate``, remotely.

Every group has a direction of its own, and all of them travel in one message.
"""

from collections.abc import Mapping, Sequence

import torch

from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
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


def agree_on_rate(
    plan: NetworkPlan,
    encoding: Encoding,
    counts: Mapping[str, Sequence[int]],
    transport: Transport,
) -> str:
    """Return the largest learning rate that is safe for all groups, as a word.

    A site that does not answer is left out of the sums, and of the counts that divide them.
    """
    start = first_direction(len(encoding.names), torch.float64)
    directions = start.repeat(len(encoding.groups), 1)
    sizes = directions.new_ones(len(encoding.groups))
    for _ in range(POWER_ITERATIONS):
        directions = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-300)
        sums = torch.zeros_like(directions)
        rows = torch.zeros(len(directions), dtype=torch.float64)
        words = {"directions": vector_to_bytes(directions.flatten())}
        answers = gathered(transport(tuple(counts), "curvature", words))
        for site in counts:
            if site not in answers.messages:
                continue
            try:
                own = vector_from_bytes(answers.messages[site], directions.flatten(), site)
            except RefusedError:
                continue
            sums += own.reshape(sums.shape)
            rows += torch.tensor(counts[site], dtype=torch.float64)
        # Rows have a 1 appended, so that sums of nothing but 0 are of no rows.
        if not bool(sums.any()):
            raise InputError(
                "no site helped to find a safe learning rate "
                f"({'; '.join(answers.failures.values())}); set learning_rate in [method]"
            )
        directions = sums / rows.clamp(min=1.0)[:, None]
        sizes = directions.norm(dim=1)
    loss = LOSSES_BY_NAME[plan.model.loss]
    return rounded_rate(rate_for_eigenvalue(loss, float(sizes.max()), linear=not plan.model.hidden))
