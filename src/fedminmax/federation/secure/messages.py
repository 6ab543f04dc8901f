"""What masked sums send: questions, masked answers, confirmations, and what unmasks them.

A masked question goes to a set of sites in three calls. The question itself comes with an ``Ask``,
and an ``Upload`` comes back. ``confirm`` comes with the sites whose uploads arrived, and each site
signs that they are the ones it was shown. ``unmask`` comes with all signatures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import Base64Bytes, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from torch import Tensor

from fedminmax.federation.secure.fixed_point import EXACT_BYTES, Layout, Packed
from fedminmax.federation.secure.masks import (
    TAG_BYTES,
    digest,
    exact_from_bytes,
    exact_to_bytes,
)
from fedminmax.federation.secure.shamir import SECRET_BYTES, SHARE_BYTES
from fedminmax.federation.wire.codec import (
    RefusedError,
    check_length,
    checked_bytes,
    read_vectors,
    write_vectors,
)

MAX_BYTES = 2**24
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64
SEALED_BYTES = SHARE_BYTES + TAG_BYTES
HEADER_BYTES = 2**12
UPLOAD_VECTORS = {
    "words": (torch.int64,),
    "exact": (torch.uint8,),
    "commitments": (torch.uint8,),
    "shares": (torch.uint8,),
    "signature": (torch.uint8,),
    "unfit": (torch.int64,),
}
STRICT = ConfigDict(extra="forbid")
Number = Annotated[int, Field(ge=0, le=2**53)]
Secret = Annotated[Base64Bytes, Field(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
Share = Annotated[Base64Bytes, Field(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Sealed = Annotated[Base64Bytes, Field(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
Signature = Annotated[Base64Bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
MessageT = TypeVar("MessageT")


@with_config(STRICT)
@dataclass(frozen=True)
class Context:
    """What a mask is for: a question of a run, and which attempt at it this is.

    ``question`` is the site's function that is asked, ``run`` the number among the plan's runs.
    """

    question: Annotated[str, Field(max_length=100)]
    run: Number = 0
    round: Number = 0
    phase: Number = 0
    attempt: Number = 0

    @property
    def topic(self) -> "Context":
        """The same question, whichever attempt."""
        return replace(self, attempt=0)

    def __str__(self) -> str:
        return f"'{self.question}' in round {self.round}, phase {self.phase}, of run {self.run + 1}"


@with_config(STRICT)
@dataclass(frozen=True)
class Ask:
    """The part of a question that says how to mask its answer, the same for all sites."""

    context: Context
    sites: tuple[str, ...]
    layout: Layout


@with_config(STRICT)
@dataclass(frozen=True)
class ConfirmAsk:
    """Whose uploads arrived."""

    context: Context
    arrived: tuple[str, ...]


@with_config(STRICT)
@dataclass(frozen=True)
class UnmaskAsk:
    """All signatures; for each site that has gone, its sealed shares by recipient."""

    context: Context
    signatures: Mapping[str, Signature]
    gone: Mapping[str, Mapping[str, Sealed]]


@with_config(STRICT)
@dataclass(frozen=True)
class Unmasked:
    """A site's own seed, and its shares of the seeds of sites that have gone."""

    seed: Secret
    shares: Mapping[str, Share]


AnyAsk = Ask | ConfirmAsk | UnmaskAsk
# To make one takes longer than all that is done with it.
ADAPTERS: dict[object, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Ask, ConfirmAsk, UnmaskAsk, Unmasked)
}


@dataclass(frozen=True, eq=False)
class Upload:
    """A site's masked answer, or the sections that did not fit.

    ``commitments`` are the hash of its seed, and the hashes of the other sites' shares of it, in
    the order of the sites that were asked, without itself; so are the sealed ``shares``.
    """

    packed: Packed
    commitments: tuple[bytes, ...]
    shares: tuple[bytes, ...]
    signature: bytes
    unfit: tuple[int, ...] = ()


def to_bytes(message: AnyAsk | Unmasked) -> bytes:
    """Write one of the short messages as JSON."""
    return ADAPTERS[type(message)].dump_json(message)


def from_bytes(message: object, kind: type[MessageT], sender: str) -> MessageT:
    """Read one of the short messages."""
    content = checked_bytes(message, MAX_BYTES, sender)
    try:
        read: MessageT = ADAPTERS[kind].validate_json(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:100]
        raise RefusedError(f"{sender} sent no valid {kind.__name__} ({where}); refused") from error
    return read


def order_hash(*parts: bytes | memoryview) -> bytes:
    """Return the hash of what is asked; what does not change the answer need not be in it."""
    return digest("order", *parts)


def statement(session: bytes, ask: Ask, order: bytes) -> bytes:
    """Return the hash of all that the sites of an attempt must have seen alike."""
    return digest("statement", session, to_bytes(ask), order)


def confirmation(stated: bytes) -> bytes:
    """Return what a site signs when it learns that all uploads arrived."""
    return digest("confirm", stated)


def upload_content(
    stated: bytes, commitments: tuple[bytes, ...], shares: tuple[bytes, ...]
) -> bytes:
    """Return what a site signs with its upload."""
    return digest("upload", stated, *commitments, *shares)


def commitment(
    purpose: Literal["seed", "share"], stated: bytes, owner: str, secret: bytes
) -> bytes:
    """Return the hash that says nothing of a random secret, but lets nobody change it later."""
    return digest(f"commit {purpose}", stated, owner.encode(), secret)


def upload_to_bytes(upload: Upload) -> bytes:
    """Write an upload."""
    return write_vectors(
        {
            "words": torch.from_numpy(upload.packed.words.view(np.int64)),
            "exact": _bytes(exact_to_bytes(upload.packed.exact)),
            "commitments": _bytes(b"".join(upload.commitments)),
            "shares": _bytes(b"".join(upload.shares)),
            "signature": _bytes(upload.signature),
            "unfit": torch.tensor(upload.unfit, dtype=torch.int64),
        }
    )


def unfit_to_bytes(sections: tuple[int, ...]) -> bytes:
    """Write that the numbers of these sections do not fit."""
    nothing = Packed(np.zeros(0, dtype=np.uint64), ())
    return upload_to_bytes(Upload(nothing, (), (), b"", sections))


def upload_from_bytes(message: object, ask: Ask, sender: str) -> Upload:
    """Read an upload for what was asked."""
    others = len(ask.sites) - 1
    limit = (
        ask.layout.bytes
        + len(ask.sites) * (DIGEST_BYTES + SEALED_BYTES)
        + 8 * len(ask.layout.sections)
        + HEADER_BYTES
    )
    vectors = read_vectors(message, UPLOAD_VECTORS, limit, sender)
    unfit = tuple(int(place) for place in vectors["unfit"])
    if unfit:
        if not all(0 <= place < len(ask.layout.sections) for place in unfit):
            raise RefusedError(f"{sender} says that unknown sections do not fit; refused")
        return Upload(Packed(np.zeros(0, dtype=np.uint64), ()), (), (), b"", unfit)
    check_length(vectors, "words", ask.layout.words, sender)
    check_length(vectors, "exact", EXACT_BYTES * ask.layout.exact_numbers, sender)
    check_length(vectors, "commitments", DIGEST_BYTES * (1 + others), sender)
    check_length(vectors, "shares", SEALED_BYTES * others, sender)
    check_length(vectors, "signature", SIGNATURE_BYTES, sender)
    words = vectors["words"].numpy().view(np.uint64)
    exact = exact_from_bytes(vectors["exact"].numpy().tobytes())
    return Upload(
        Packed(words, exact),
        _pieces(vectors["commitments"], DIGEST_BYTES),
        _pieces(vectors["shares"], SEALED_BYTES),
        vectors["signature"].numpy().tobytes(),
    )


def _bytes(content: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(content), dtype=np.uint8))


def _pieces(vector: Tensor, size: int) -> tuple[bytes, ...]:
    content = vector.numpy().tobytes()
    return tuple(content[place : place + size] for place in range(0, len(content), size))
