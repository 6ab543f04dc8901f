"""A site as its server reaches it: nothing leaves that is not in the site's log before.

A message about a table may quote a row, so only refusals of what the server asked for go out with
their reason; everything else stays in the site's own log of messages.
"""

import logging
import threading
from collections.abc import Mapping

import torch

from fedminmax.network.secure.messages import Ask, Context, UnmaskAsk, from_bytes
from fedminmax.network.site.ledger import Ledger
from fedminmax.network.site.requests import Endpoint, Request
from fedminmax.network.site.site import SERVER, Site
from fedminmax.network.wire.codec import RefusedError, read_vectors
from fedminmax.network.wire.messages import MAX_MODELS_BYTES, ORDER_NUMBERS

LOG = logging.getLogger("fedminmax.site")
FAILED = "its work failed; the reason is in this site's log"
# Their answers have no numbers from the table.
WITHOUT_NUMBERS = frozenset(
    {
        Endpoint.KEYS,
        Endpoint.SET_ROSTER,
        Endpoint.TAKE_RATE,
        Endpoint.TRACE,
        Endpoint.UNMASK,
    }
)
ORDER_VECTORS = {
    "numbers": (torch.int64,),
    "parameters": (torch.float32, torch.float64),
    "weights": (torch.float64,),
}


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

    def answer(self, question: Endpoint, payload: Mapping[str, object]) -> bytes | str:
        """Answer one call of the server."""
        with self._work:
            asked = self._asked(question, payload)
            ledger = self._site.ledger
            try:
                ledger.check_call(asked)
                message: bytes = getattr(self._site, question.value)(**payload)
                has_numbers = bool(message) and question not in WITHOUT_NUMBERS
                masked = payload.get("secure") is not None
                ledger.sent(asked, message, masked=masked if has_numbers else None)
            except RefusedError as error:
                LOG.warning("refused: %s", error)
                return refuse(ledger, asked, str(error))
            except Exception:
                LOG.exception("the work failed")
                return refuse(ledger, asked, FAILED)
            return message

    def _asked(self, question: Endpoint, payload: Mapping[str, object]) -> Request:
        asked = asked_by(question, payload)
        if question is Endpoint.CURVATURE and asked.round == 0:
            # Directions that are not masked have no number.
            self._directions += 1
            return Request(question, round=self._directions)
        return asked


def refuse(ledger: Ledger, asked: Request, reason: str) -> str:
    """Log a refusal and return it; a log that cannot be written does not hold it up."""
    try:
        ledger.refused(asked, reason)
    except (RefusedError, OSError) as error:
        LOG.error("a refusal could not be logged: %s", error)  # noqa: TRY400 - no traceback needed
    return reason


def asked_by(question: Endpoint, payload: Mapping[str, object]) -> Request:
    """Return what a call asks, as it says itself; what cannot be read is 0."""
    run = payload.get("run")
    number = run if isinstance(run, int) else 0
    try:
        if question is Endpoint.TRACE:
            context = from_bytes(payload["message"], Context, SERVER)
            return _of(context, question, about=Endpoint(context.question))
        if question is Endpoint.UNMASK:
            context = from_bytes(payload["message"], UnmaskAsk, SERVER).context
            return _of(context, question, about=Endpoint(context.question))
        if payload.get("secure") is not None:
            return _of(from_bytes(payload["secure"], Ask, SERVER).context, question)
        if "order" in payload:
            vectors = read_vectors(payload["order"], ORDER_VECTORS, MAX_MODELS_BYTES, SERVER)
            _, round_, phase = (
                int(vectors["numbers"][place]) for place in range(len(ORDER_NUMBERS))
            )
            return Request(question, number, round=round_, phase=phase)
    except (RefusedError, ValueError, LookupError):
        # The site refuses the call and says why.
        pass
    return Request(question, number)


def _of(context: Context, question: Endpoint, about: Endpoint | None = None) -> Request:
    return Request(
        question,
        context.run,
        round=context.round,
        phase=context.phase,
        about=about,
        attempt=context.attempt,
    )
