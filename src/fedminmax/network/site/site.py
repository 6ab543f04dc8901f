"""A working site: messages in, messages out; its rows never leave it.

The rows are encoded as at all sites (``EncodedSite``). The same code as in the simulation computes
the replies, and nothing here knows how messages travel. Questions must come in order: first those
of ``AgreeingSite``. A ``Sender`` that is chosen with the plan sends what is computed, as it is or
under masks.

A site as its server reaches it: nothing leaves that is not in the site's journal before.

A message about a table may quote a row, so only refusals of what the server asked for go out with
their reason; everything else stays in the site's own log of messages.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fedminmax.core.messages import Order, Sums
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.frontier_server import models_of
from fedminmax.network.secure.messages import Ask, UnmaskAsk, from_bytes
from fedminmax.network.site.agreeing import SERVER, AgreeingSite, bytes_of, content_of
from fedminmax.network.site.encoded_site import reply_to
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import check_models, check_order
from fedminmax.network.site.privacy import check_range
from fedminmax.network.site.sender import Asked, check_before_masking
from fedminmax.network.wire.calls import (
    ARGUMENTS,
    COMPARED,
    MAX_NUMBER,
    SECURE,
    WITH_NUMBERS,
    Endpoint,
    Question,
)
from fedminmax.network.wire.codec import RefusedError, read_vectors
from fedminmax.network.wire.messages import MAX_MODELS_BYTES, models_from_bytes, order_from_bytes
from fedminmax.network.wire.sections import (
    Sections,
    sections_of_losses,
    sections_of_models,
    sections_of_sums,
)
from fedminmax.training.certify import MAX_ROUNDS, prover_for


class Site(AgreeingSite):
    """One site in one job."""

    def answer(self, run: object, order: object, ask: Ask | None = None) -> bytes:
        """Do one round's work for one of the plan's runs."""
        job, encoded_site = self._ready("an order")
        number, method = self._method(run)
        came = order_from_bytes(order, encoded_site.start, SERVER)
        question = Question(Endpoint.ANSWER, number, came.key.round, came.phase)
        check_order(question, came, job.plan)
        self._check_turn(question)
        content = content_of(came.parameters, came.weights)
        if job.private is not None:
            # A rate that the plan leaves open decides answers, too.
            content.append(memoryview(repr(method).encode()))
            check_range(came)
            job.private.begin()
        self.journal.allow(question, *content)
        self._latest = question

        def sections() -> Sections:
            reply = reply_to(method, came, encoded_site, self._states[number])
            if job.plan.validation and came.phase == 0:
                losses = encoded_site.validation_losses(came.parameters)
                reply = replace(reply, validation=losses)
            if job.private is not None:
                return job.private.reply(encoded_site, method, came, reply, b"".join(content))
            return self._sections(method, came, reply)

        asked = Asked(question, bytes_of(order), ask)
        return job.sender.send(asked, sections, lambda layouts: layouts.round(method, came))

    def _sections(self, method: AnyMethod[Any], order: Order, reply: Sums) -> Sections:
        """Return a reply as sections; where nobody else could check it, this site does."""
        if self.is_masked:
            _, encoded_site = self._ready("an order")
            check_before_masking(method, order, reply, encoded_site, self._lengths)
        return sections_of_sums(reply)

    def validate(self, run: object, order: object, ask: Ask | None = None) -> bytes:
        """Return the losses of a run's last model on validation rows."""
        job, encoded_site = self._ready("a model to validate")
        if not job.plan.validation:
            raise RefusedError(f"{SERVER} asks for validation, which its plan does not have")
        number, _ = self._method(run)
        came = order_from_bytes(order, encoded_site.start, SERVER)
        if not 1 <= came.key.round <= job.plan.runs[number].rounds + 1 or came.phase:
            raise RefusedError(f"{SERVER} asks to validate round {came.key.round}")
        question = Question(Endpoint.VALIDATE, number, came.key.round)
        self.journal.allow(question, *content_of(came.parameters))
        return job.sender.send(
            Asked(question, bytes_of(order), ask),
            lambda: sections_of_losses(encoded_site.validation_losses(came.parameters)),
            lambda layouts: layouts.validation(came),
        )

    def certify(self, run: object, order: object, ask: Ask | None = None) -> bytes:
        """Return sums by group for a proof of how good the first run's model is."""
        job, encoded_site = self._ready("a model to certify")
        if not job.plan.certify or run != 0 or not self._methods:
            raise RefusedError(f"{SERVER} asks for a proof, which its plan does not have")
        came = order_from_bytes(order, encoded_site.start, SERVER)
        if not 1 <= came.key.round <= MAX_ROUNDS or came.phase:
            raise RefusedError(f"{SERVER} asks for round {came.key.round} of a proof")
        question = Question(Endpoint.CERTIFY, round=came.key.round)
        self._check_turn(question)
        self.journal.allow(question, *content_of(came.parameters))
        self._latest = question
        prover = prover_for(encoded_site.workspace.linear, encoded_site.data.groups)

        def sections() -> Sections:
            reply = reply_to(prover, came, encoded_site)
            return self._sections(prover, came, reply)

        asked = Asked(question, bytes_of(order), ask)
        return job.sender.send(asked, sections, lambda layouts: layouts.proof(came))

    def measure(self, models: object, ask: Ask | None = None) -> bytes:
        """Return sums of scores of each run's models over the held-out rows."""
        job, encoded_site = self._ready("models")
        count = sum(map(models_of, self._methods))
        runs = models_from_bytes(models, count, encoded_site.start, SERVER)
        check_models(runs, self._methods, job.plan)
        question = Question(Endpoint.MEASURE)
        self.journal.allow(question, *content_of(*runs))
        if job.private is not None:
            job.private.forget_key()
        return job.sender.send(
            Asked(question, bytes_of(models), ask),
            lambda: sections_of_models(encoded_site.measure(runs)),
            lambda layouts: layouts.measure(len(runs)),
        )

    def _method(self, run: object) -> tuple[int, AnyMethod[Any]]:
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        return run, self._methods[run]

    def _check_turn(self, question: Question) -> None:
        """Refuse an earlier question than the latest of this job; the same may be repeated."""
        if self._latest is not None and question.turn < self._latest.turn:
            raise RefusedError(f"{SERVER} asks for {question} after {self._latest}")


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
    """Answers bytes, or the reason for a refusal as text; both are logged before they leave."""

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
