"""A site with other code: it lies about masks in one run, and dies in another.

Where it dies it kills its own process, so that no test depends on the time that a round takes.
"""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedminmax.network.secure.fixed_point import Packed
from fedminmax.network.secure.messages import (
    SIGNATURE_BYTES,
    Ask,
    Context,
    UnmaskAsk,
    Unmasked,
    from_bytes,
    to_bytes,
    upload_content,
)
from fedminmax.network.secure.site import SecureSite
from fedminmax.network.site.answering import AnsweringSite, asked_by
from fedminmax.network.site.requests import Endpoint

FOLDER_VARIABLE = "FEDMINMAX_TEST_FOLDER"
LIES, DEATHS, TELLS_WEST = "lies", "deaths", "tells-west"
REPLAYS, OTHER_SEED, SECOND_KEY, BAD_SHARE = 2, 3, 4, 5
# What the server does in these runs.
ATTACKED_ROUND, SERVER_DIES_IN = 7, 8
# By round: the call, and whether the message was logged before.
DIES_AT = {
    2: (Endpoint.ANSWER, False),
    4: (Endpoint.UNMASK, False),
    6: (Endpoint.UNMASK, True),
}
# A file with the round in which the site died, until it is back.
DEAD = "dead"


def install(_: type[Any]) -> None:
    """Lie under masks, and die where the run says so."""
    _lie()
    _die()


def _flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def _lie() -> None:
    mask, unmask = SecureSite.mask, SecureSite.unmask
    uploads: dict[int, bytes] = {}

    def lying_mask(
        self: SecureSite, secure: object, topic: Context, packed: Packed, question: bytes
    ) -> bytes:
        upload = mask(self, secure, topic, packed, question)
        if self._terms.run != LIES or topic.question != Endpoint.ANSWER.value:
            return upload
        uploads[topic.round] = upload
        if topic.round == REPLAYS:
            return uploads[topic.round - 1]
        if topic.round == SECOND_KEY:
            stated = self._masked[from_bytes(secure, Ask, "it").context].stated
            signature = Ed25519PrivateKey.generate().sign(upload_content(stated))
            return upload[:-SIGNATURE_BYTES] + signature
        return upload

    def lying_unmask(self: SecureSite, message: object) -> bytes:
        context = from_bytes(message, UnmaskAsk, "it").context
        told = from_bytes(unmask(self, message), Unmasked, "it")
        if self._terms.run == LIES and context.question == Endpoint.ANSWER.value:
            if context.round == OTHER_SEED:
                told = replace(told, seed=_flipped(told.seed))
            if context.round == BAD_SHARE:
                shares = {owner: _flipped(share) for owner, share in told.shares.items()}
                told = replace(told, shares=shares)
        return to_bytes(told)

    # Other code: what a type checker would say about it is the point.
    SecureSite.mask = lying_mask  # type: ignore[method-assign]
    SecureSite.unmask = lying_unmask  # type: ignore[method-assign]


def _die() -> None:
    honest = AnsweringSite.answer
    folder = Path(os.environ[FOLDER_VARIABLE])

    def answer(self: AnsweringSite, question: Endpoint, payload: Any) -> bytes | str:
        if question is Endpoint.PREPARE:
            (folder / DEAD).unlink(missing_ok=True)
        plan, asked = self._site._plan, asked_by(question, payload)
        about = Endpoint.ANSWER in (asked.question, asked.about)
        where = DIES_AT.get(asked.round) if about and plan and plan.run == DEATHS else None
        note = folder / f"died-{asked.round}"
        dies = where is not None and where[0] is question and not note.exists()
        if dies and where == (question, False):
            _end(note, asked.round)
        message = honest(self, question, payload)
        if dies:
            _end(note, asked.round)
        return message

    AnsweringSite.answer = answer  # type: ignore[method-assign]


def _end(note: Path, number: int) -> None:
    note.touch()
    (note.parent / DEAD).write_text(str(number))
    os.kill(os.getpid(), signal.SIGKILL)
