"""All sites as one holder, without masks: their replies are added up on the way to the server."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import torch

from fedminmax.federation.per_holder import add_up
from fedminmax.federation.server.transport import NO_LIMITS, Answer, gathered
from fedminmax.federation.wire.messages import (
    losses_from_bytes,
    losses_to_bytes,
    order_from_bytes,
    score_sums_from_bytes,
    score_sums_to_bytes,
    sums_from_bytes,
    sums_to_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from fedminmax.federation.wire.plan import ALL_SITES, NetworkPlan, plan_from_bytes, plan_to_bytes
from fedminmax.federation.wire.summary import summary_from_bytes, summary_to_bytes
from tests.federation.network_problem import SITES, DirectTransport

ROOM = 2**24
GROUPS, FEATURES = 2, 4
MODEL = torch.zeros(10, dtype=torch.float64)


class AddingTransport:
    """Asks all sites what is asked of all sites together; ``absent`` are not asked in rounds."""

    def __init__(
        self, folder: Path, plan: NetworkPlan, scores: int, absent: Mapping[str, str] | None = None
    ) -> None:
        self._direct = DirectTransport(folder)
        self._plan = plan
        self._scores = scores
        self._absent = dict(absent or {})

    def __call__(
        self,
        sites: Sequence[str],
        question: str,
        words: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - nobody takes long here
    ) -> Iterator[Answer]:
        assert tuple(sites) == (ALL_SITES,)
        if question == "prepare":
            plan = replace(plan_from_bytes(words["plan"], "test"), secure_sums=None)
            words = {"plan": plan_to_bytes(plan)}
        absent = self._absent if question in ("answer", "validate") else {}
        asked = [site for site in SITES if site not in absent]
        answers = gathered(self._direct(asked, question, words))
        assert not answers.failures
        messages = [answers.messages[site] for site in asked]
        later = question == "answer" and order_from_bytes(words["order"], MODEL, "").phase > 0
        validates = self._plan.validation > 0 and question == "answer" and not later
        yield Answer(ALL_SITES, self._added(question, messages, validates), absent=absent)

    def _added(self, question: str, messages: list[object], validates: bool) -> bytes:  # noqa: FBT001
        counts = torch.zeros(GROUPS * (2 if self._plan.validation else 1), dtype=torch.int64)
        lines = torch.zeros(GROUPS * (FEATURES + 1), dtype=torch.float64)
        own: dict[str, Callable[[], bytes]] = {
            "take_rate": lambda: b"",
            "prepare": lambda: summary_to_bytes(
                reduce(add, [summary_from_bytes(m, self._plan.schema, "") for m in messages])
            ),
            "encode": lambda: vector_to_bytes(
                sum((vector_from_bytes(m, counts, "") for m in messages), counts)
            ),
            "curvature": lambda: vector_to_bytes(
                sum((vector_from_bytes(m, lines, "") for m in messages), lines)
            ),
            "validate": lambda: losses_to_bytes(
                reduce(add, [losses_from_bytes(m, GROUPS, "") for m in messages])
            ),
            "measure": lambda: score_sums_to_bytes(
                reduce(add, [score_sums_from_bytes(m, GROUPS, self._scores, "") for m in messages])
            ),
        }
        if question in ("answer", "certify"):
            replies = (
                sums_from_bytes(m, MODEL, GROUPS, ROOM, "", validates=validates)[0]
                for m in messages
            )
            return sums_to_bytes(add_up(replies), 0.0)
        return own[question]()
