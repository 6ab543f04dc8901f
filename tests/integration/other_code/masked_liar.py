"""A site with other code: it lies about masks in one run, and dies in another.

Where it dies it kills its own process, so that no test depends on the time that a round takes.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedminmax.network.secure.fixed_point import Packed
from fedminmax.network.secure.messages import (
    SIGNATURE_BYTES,
    Ask,
    UnmaskAsk,
    Unmasked,
    from_bytes,
    to_bytes,
    upload_content,
)
from fedminmax.network.secure.secure_site import SecureSite
from fedminmax.network.site.site import AnsweringSite, read_call
from fedminmax.network.wire.calls import Endpoint, Question

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
        self: SecureSite,
        ask: Ask | None,
        topic: Question,
        pack: Callable[[int], Packed],
        question: bytes,
    ) -> bytes:
        upload = mask(self, ask, topic, pack, question)
        if self._terms.run != LIES or topic.endpoint != Endpoint.ANSWER or ask is None:
            return upload
        uploads[topic.round] = upload
        if topic.round == REPLAYS:
            return uploads[topic.round - 1]
        if topic.round == SECOND_KEY:
            stated = self._masked[ask.question].stated
            signature = Ed25519PrivateKey.generate().sign(upload_content(stated))
            return upload[:-SIGNATURE_BYTES] + signature
        return upload

    def lying_unmask(self: SecureSite, asked: UnmaskAsk) -> bytes:
        question = asked.question
        told = from_bytes(unmask(self, asked), Unmasked, "it")
        if self._terms.run == LIES and question.endpoint == Endpoint.ANSWER:
            if question.round == OTHER_SEED:
                told = replace(told, seed=_flipped(told.seed))
            if question.round == BAD_SHARE:
                shares = {owner: _flipped(share) for owner, share in told.shares.items()}
                told = replace(told, shares=shares)
        return to_bytes(told)

    # Other code: what a type checker would say about it is the point.
    SecureSite.mask = lying_mask  # type: ignore[method-assign]
    SecureSite.unmask = lying_unmask  # type: ignore[method-assign]


def _die() -> None:
    honest = AnsweringSite.answer
    folder = Path(os.environ[FOLDER_VARIABLE])

    def answer(self: AnsweringSite, endpoint: Endpoint, payload: Any) -> bytes | str:
        if endpoint is Endpoint.PREPARE:
            (folder / DEAD).unlink(missing_ok=True)
        prepared, asked = self._site._prepared, read_call(endpoint, payload).question
        in_deaths = prepared is not None and prepared.plan.run == DEATHS
        about = asked.endpoint == Endpoint.ANSWER
        where = DIES_AT.get(asked.round) if about and in_deaths else None
        note = folder / f"died-{asked.round}"
        dies = where is not None and where[0] is endpoint and not note.exists()
        if dies and where == (endpoint, False):
            _end(note, asked.round)
        message = honest(self, endpoint, payload)
        if dies:
            _end(note, asked.round)
        return message

    AnsweringSite.answer = answer  # type: ignore[method-assign]


def _end(note: Path, number: int) -> None:
    note.touch()
    (note.parent / DEAD).write_text(str(number))
    os.kill(os.getpid(), signal.SIGKILL)
