"""What masked sums send: questions, masked answers, and what unmasks them.

A masked question goes to a set of sites in two calls. The question itself comes with an ``Ask``,
and an ``Upload`` comes back, with a signature of all that its site saw. ``unmask`` comes with the
signatures of all sites, and each site compares them with what it saw itself.

An upload is raw bytes, since ``Ask`` says how long each part is: for a model of a hundred numbers a
header would be as long as the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Base64Bytes, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from fedminmax.federation.secure.fixed_point import EXACT_BYTES, Layout, Packed
from fedminmax.federation.secure.masks import (
    TAG_BYTES,
    digest,
    exact_from_bytes,
    exact_to_bytes,
)
from fedminmax.federation.secure.shamir import SECRET_BYTES, SHARE_BYTES
from fedminmax.federation.wire.codec import RefusedError, checked_bytes

MAX_BYTES = 2**24
DIGEST_BYTES = 32
# To find another share with the same hash takes 2^128 tries.
SHARE_DIGEST_BYTES = 16
SIGNATURE_BYTES = 64
SEALED_BYTES = SHARE_BYTES + TAG_BYTES
# The last byte of an upload: masked numbers, or the sections whose numbers do not fit.
MASKED, UNFIT = b"\0", b"\1"
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
class UnmaskAsk:
    """All uploads' signatures; for each site that has gone, its sealed shares by recipient."""

    context: Context
    signatures: Mapping[str, Signature]
    gone: Mapping[str, Mapping[str, Sealed]]


@with_config(STRICT)
@dataclass(frozen=True)
class Unmasked:
    """A site's own seed, and its shares of the seeds of sites that have gone."""

    seed: Secret
    shares: Mapping[str, Share]


AnyAsk = Ask | UnmaskAsk
# To make one takes longer than all that is done with it.
ADAPTERS: dict[object, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Ask, Layout, UnmaskAsk, Unmasked)
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


def layout_hash(layout: Layout) -> bytes:
    """Return the hash of how an answer's numbers are rounded."""
    return digest("layout", ADAPTERS[Layout].dump_json(layout))


def statement(session: bytes, ask: Ask, order: bytes) -> bytes:
    """Return the hash of all that the sites of an attempt must have seen alike."""
    return digest("statement", session, to_bytes(ask), order)


def upload_content(stated: bytes) -> bytes:
    """Return what a site signs with its upload."""
    return digest("upload", stated)


def commitment(
    purpose: Literal["seed", "share"], stated: bytes, owner: str, secret: bytes
) -> bytes:
    """Return the hash that says nothing of a random secret, but lets nobody change it later."""
    whole = digest(f"commit {purpose}", stated, owner.encode(), secret)
    return whole if purpose == "seed" else whole[:SHARE_DIGEST_BYTES]


def upload_to_bytes(upload: Upload) -> bytes:
    """Write an upload."""
    return b"".join(
        (
            upload.packed.words.astype("<u8", copy=False).data,
            exact_to_bytes(upload.packed.exact),
            *upload.commitments,
            *upload.shares,
            upload.signature,
            MASKED,
        )
    )


def unfit_to_bytes(sections: tuple[int, ...]) -> bytes:
    """Write that the numbers of these sections do not fit."""
    return np.array(sections, dtype="<u2").tobytes() + UNFIT


def upload_from_bytes(message: object, ask: Ask, sender: str) -> Upload:
    """Read an upload for what was asked."""
    others, layout = len(ask.sites) - 1, ask.layout
    sizes = (
        8 * layout.words,
        EXACT_BYTES * layout.exact_numbers,
        DIGEST_BYTES,
        SHARE_DIGEST_BYTES * others,
        SEALED_BYTES * others,
        SIGNATURE_BYTES,
    )
    longest = max(sum(sizes), 2 * len(layout.sections)) + 1
    content = checked_bytes(message, longest, sender)
    if content[-1:] == UNFIT:
        return _unfit_from_bytes(content[:-1], ask, sender)
    if content[-1:] != MASKED or len(content) != sum(sizes) + 1:
        raise RefusedError(
            f"{sender} sent a masked answer of {len(content):,} bytes, {sum(sizes) + 1:,} were "
            "expected; refused"
        )
    ends = tuple(accumulate(sizes))
    exact, of_seed, of_shares, shares, signature = (
        content[start:end] for start, end in pairwise(ends)
    )
    words = np.frombuffer(content, dtype="<u8", count=layout.words)
    return Upload(
        Packed(words, exact_from_bytes(exact)),
        (of_seed, *_pieces(of_shares, SHARE_DIGEST_BYTES)),
        _pieces(shares, SEALED_BYTES),
        signature,
    )


def _unfit_from_bytes(content: bytes, ask: Ask, sender: str) -> Upload:
    sections = np.frombuffer(content[: len(content) // 2 * 2], dtype="<u2").tolist()
    if len(content) % 2 or not sections or max(sections) >= len(ask.layout.sections):
        raise RefusedError(f"{sender} says that unknown sections do not fit; refused")
    nothing = Packed(np.zeros(0, dtype=np.uint64), ())
    return Upload(nothing, (), (), b"", tuple(sections))


def _pieces(content: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(content[place : place + size] for place in range(0, len(content), size))
