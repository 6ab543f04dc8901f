"""What a site refuses of orders that do not follow the plan, whatever its rows."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedminmax.core.messages import Order
from fedminmax.methods.card import max_members
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod
from fedminmax.network.site.requests import Request
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan

SERVER = "the server"


def check_order(asked: Request, order: Order, plan: NetworkPlan) -> None:
    """Refuse a round that the plan does not have."""
    planned = plan.runs[asked.number]
    if not 1 <= asked.round <= planned.rounds:
        raise RefusedError(f"{SERVER} asks for round {asked.round} of {planned.rounds}")
    if asked.phase >= CARDS[planned.method].requests:
        raise RefusedError(f"{SERVER} asks {planned.method} too often in a round")
    if order.key.seed != plan.seed:
        raise RefusedError(f"{SERVER} sent another seed than its plan's")


def check_after(asked: Request, latest: Request | None) -> None:
    """Refuse an earlier question than the latest of this job; the same one may be repeated."""
    if latest is not None and asked.is_before(latest):
        raise RefusedError(f"{SERVER} asks for {asked} after {latest}")


def check_models(
    runs: Sequence[Tensor], methods: Sequence[AnyMethod[Any]], plan: NetworkPlan
) -> None:
    """Refuse to measure more models than a run can return."""
    for members, method, planned in zip(runs, methods, plan.runs, strict=True):
        most = max_members(method, planned.rounds)
        if len(members) > most:
            raise RefusedError(
                f"{SERVER} sent {len(members)} models of {planned.method}, which has {most}"
            )
