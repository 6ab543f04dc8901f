"""A site as its server reaches it: nothing leaves that is not in the site's journal before.

A message about a table may quote a row, so only refusals of what the server asked for go out with
their reason; everything else stays in the site's own log of messages.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from fedminmax.network.secure.messages import Ask, UnmaskAsk, from_bytes
from fedminmax.network.site.agreeing import SERVER
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.site import Site
from fedminmax.network.wire.codec import RefusedError, read_vectors
from fedminmax.network.wire.endpoints import (
    ARGUMENTS,
    COMPARED,
    MAX_NUMBER,
    SECURE,
    WITH_NUMBERS,
    Endpoint,
    Question,
)
from fedminmax.network.wire.messages import MAX_MODELS_BYTES

LOG = logging.getLogger("fedminmax.site")
FAILED = "its work failed; the reason is in this site's log"
ORDER_VECTORS = {
    "numbers": (torch.int64,),
    "parameters": (torch.float32, torch.float64),
    "weights": (torch.float64,),
}


@dataclass(frozen=True, eq=False)
class Call:
    """One call of the server: what is called, and about which question, as it says itself.

    ``arguments`` are those of the site's function; with a ``fault`` they could not be read.
    """

    endpoint: Endpoint
    question: Question
    arguments: Mapping[str, object] = field(default_factory=dict)
    fault: RefusedError | None = None


def read_call(endpoint: Endpoint, payload: object) -> Call:
    """Read what came with a call; of a call that cannot be read, the question is of round 0."""
    allowed = ARGUMENTS.get(endpoint, frozenset()) | {SECURE}
    if not isinstance(payload, Mapping) or not payload.keys() <= allowed:
        fault = RefusedError(f"{SERVER} sent other arguments than '{endpoint}' has")
        return Call(endpoint, Question(endpoint), fault=fault)
    question = Question(endpoint, _number(payload.get("run")), _number(payload.get("stage")))
    arguments = {name: value for name, value in payload.items() if name != SECURE}
    try:
        if endpoint is Endpoint.UNMASK:
            asked = from_bytes(payload["message"], UnmaskAsk, SERVER)
            return Call(endpoint, asked.question, {"asked": asked})
        if endpoint is Endpoint.TRACE:
            masked = from_bytes(payload["message"], Question, SERVER)
            return Call(endpoint, masked, {"question": masked})
        if endpoint in WITH_NUMBERS and payload.get(SECURE) is not None:
            ask = from_bytes(payload[SECURE], Ask, SERVER)
            question = replace(ask.question, endpoint=endpoint)
            return Call(endpoint, question, arguments | {"ask": ask})
    except (RefusedError, LookupError) as error:
        fault = error if isinstance(error, RefusedError) else RefusedError("nothing was asked")
        return Call(endpoint, question, fault=fault)
    if "order" in payload:
        question = _with_round(question, payload["order"])
    return Call(endpoint, question, arguments)


def _with_round(question: Question, order: object) -> Question:
    """Return the question about an order; the site refuses an order that cannot be read."""
    try:
        numbers = read_vectors(order, ORDER_VECTORS, MAX_MODELS_BYTES, SERVER)["numbers"]
        _, number, phase = numbers.tolist()
    except (RefusedError, ValueError):
        return question
    return replace(question, round=_number(number), phase=_number(phase))


def _number(value: object) -> int:
    """Return a number as the journal takes it; anything else is 0."""
    return value if isinstance(value, int) and 0 <= value <= MAX_NUMBER else 0


class AnsweringSite:
    """Answers bytes, or the reason for a refusal as text; both are logged before they leave.

    Args:
        site: what computes the answers.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        # An order that the server gave up on may still be running when the next one arrives.
        self._work = threading.Lock()
        self._directions = 0

    def answer(self, endpoint: Endpoint, payload: object) -> bytes | str:
        """Answer one call of the server."""
        with self._work:
            journal = self._site.journal
            try:
                call = read_call(endpoint, payload)
            except Exception:
                LOG.exception("the call cannot be read")
                return refuse(journal, endpoint, FAILED)
            if endpoint is Endpoint.CURVATURE and call.question.round == 0:
                # Directions that are not masked have no number.
                self._directions += 1
                call = replace(call, question=replace(call.question, round=self._directions))
            try:
                journal.check_call(endpoint, call.question)
                if call.fault is not None:
                    raise call.fault  # noqa: TRY301 - a refusal like all others
                message: bytes = getattr(self._site, endpoint)(**call.arguments)
                has_numbers = bool(message) and endpoint in WITH_NUMBERS | COMPARED
                masked = self._site.is_masked if has_numbers else None
                journal.sent(endpoint, call.question, message, masked=masked)
            except RefusedError as error:
                LOG.warning("refused: %s", error)
                return refuse(journal, endpoint, str(error), call.question)
            except Exception:
                LOG.exception("the work failed")
                return refuse(journal, endpoint, FAILED, call.question)
            return message


def refuse(
    journal: Journal, endpoint: Endpoint, reason: str, question: Question | None = None
) -> str:
    """Log a refusal and return it; a journal that cannot be written does not hold it up."""
    try:
        journal.refused(endpoint, question or Question(endpoint), reason)
    except (RefusedError, OSError) as error:
        LOG.error("a refusal could not be logged: %s", error)  # noqa: TRY400 - no traceback needed
    return reason
