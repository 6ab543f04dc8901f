"""What masked sums send: questions, masked answers, and what unmasks them.

A masked question goes to a set of sites in two calls. The question itself comes with an ``Ask``,
and an ``Upload`` comes back, with a signature of all that its site saw. ``unmask`` comes with the
signatures of all sites, and each site compares them with what it saw itself.

An upload is raw bytes, since both sides know how long each part is: for a model of a hundred
numbers a header would be as long as the numbers.

Everything that decides what a site computes is one hash (``question_digest``): the plan, the
encoding, the sizes, the learning rate, the layout and the order. It is part of the statement that
masks are derived from and sites sign, so that one differing byte makes an answer useless.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, Literal, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Base64Bytes, ConfigDict, Field, with_config

from fedminmax.network.secure.fixed_point import EXACT_BYTES, Layout, Packed, words_from_bytes
from fedminmax.network.secure.masks import (
    SECRET_BYTES,
    SHARE_BYTES,
    TAG_BYTES,
    digest,
    exact_from_bytes,
    exact_to_bytes,
)
from fedminmax.network.wire.calls import Question
from fedminmax.network.wire.codec import RefusedError, record_from_bytes, record_to_bytes

MAX_BYTES = 2**24
DIGEST_BYTES = 32
# To find another share with the same hash takes 2^128 tries.
SHARE_DIGEST_BYTES = 16
SIGNATURE_BYTES = 64
SEALED_BYTES = SHARE_BYTES + TAG_BYTES
STRICT = ConfigDict(extra="forbid")
Word = Annotated[int, Field(ge=0, lt=2**64)]
Secret = Annotated[Base64Bytes, Field(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
Share = Annotated[Base64Bytes, Field(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Sealed = Annotated[Base64Bytes, Field(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
Signature = Annotated[Base64Bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
MessageT = TypeVar("MessageT")


@with_config(STRICT)
@dataclass(frozen=True)
class Ask:
    """The part of a question that says how to mask its answer, the same for all sites."""

    question: Question
    sites: tuple[str, ...]


@with_config(STRICT)
@dataclass(frozen=True)
class UnmaskAsk:
    """All uploads' signatures; for each site that has gone, its sealed shares by recipient."""

    question: Question
    signatures: Mapping[str, Signature]
    gone: Mapping[str, Mapping[str, Sealed]]


@with_config(STRICT)
@dataclass(frozen=True)
class Unmasked:
    """A site's own seed, and its shares of the seeds of sites that have gone."""

    seed: Secret
    shares: Mapping[str, Share]


@with_config(STRICT)
@dataclass(frozen=True)
class Traced:
    """What the masks shared with each other site add to the word that counts sites."""

    words: Mapping[str, Word]


AnyAsk = Ask | Layout | Question | UnmaskAsk


@dataclass(frozen=True, eq=False)
class Upload:
    """A site's masked answer.

    ``commitments`` are the hash of its seed, and the hashes of the other sites' shares of it, in
    the order of the sites that were asked, without itself; so are the sealed ``shares``.
    """

    packed: Packed
    commitments: tuple[bytes, ...]
    shares: tuple[bytes, ...]
    signature: bytes


@dataclass(frozen=True)
class Total:
    """What a total is of: the hash of the whole question (``question_digest``), and the sites."""

    digest: str
    sites: tuple[str, ...]


def to_bytes(message: AnyAsk | Traced | Unmasked) -> bytes:
    """Write one of the short messages as JSON."""
    return record_to_bytes(message)


def from_bytes(message: object, kind: type[MessageT], sender: str) -> MessageT:
    """Read one of the short messages."""
    what = f"valid {kind.__name__}"
    read: MessageT = record_from_bytes(message, kind, MAX_BYTES, sender, what)
    return read


@dataclass(frozen=True)
class Agreed:
    """What the server told a site before its first round, byte for byte.

    ``encoding`` and ``sizes`` are empty before they are agreed on, ``rate`` if the plan sets it,
    and ``values`` if it lists all categories.
    """

    plan: bytes
    values: bytes = b""
    encoding: bytes = b""
    sizes: bytes = b""
    rate: bytes = b""


def question_digest(agreed: Agreed, layout: Layout, order: bytes = b"") -> bytes:
    """Return the hash of all that decides what a site computes and how it is rounded."""
    rounding = to_bytes(layout)
    told = (agreed.plan, agreed.values, agreed.encoding, agreed.sizes, agreed.rate)
    return digest("question", *told, rounding, order)


def statement(session: bytes, ask: Ask, question: bytes) -> bytes:
    """Return the hash of all that the sites of an attempt must have seen alike."""
    return digest("statement", session, to_bytes(ask), question)


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
            upload.packed.words_to_bytes(),
            exact_to_bytes(upload.packed.exact),
            *upload.commitments,
            *upload.shares,
            upload.signature,
        )
    )


def upload_from_bytes(message: object, ask: Ask, layout: Layout, sender: str) -> Upload:
    """Read an upload for what was asked."""
    others = len(ask.sites) - 1
    sizes = (
        sum(words * width for words, width in layout.widths),
        EXACT_BYTES * layout.exact_numbers,
        DIGEST_BYTES,
        SHARE_DIGEST_BYTES * others,
        SEALED_BYTES * others,
        SIGNATURE_BYTES,
    )
    content = message if isinstance(message, bytes) else b""
    if len(content) != sum(sizes):
        raise RefusedError(
            f"{sender} sent a masked answer of {len(content):,} bytes, {sum(sizes):,} were "
            "expected; refused"
        )
    ends = tuple(accumulate(sizes))
    exact, of_seed, of_shares, shares, signature = (
        content[start:end] for start, end in pairwise(ends)
    )
    return Upload(
        Packed(words_from_bytes(layout, content), exact_from_bytes(exact), layout.widths),
        (of_seed, *_pieces(of_shares, SHARE_DIGEST_BYTES)),
        _pieces(shares, SEALED_BYTES),
        signature,
    )


def signed_upload(
    message: object, ask: Ask, layout: Layout, sender: str, *, key: Ed25519PublicKey, stated: bytes
) -> Upload:
    """Read an upload, and refuse one whose site saw something else than ``stated``."""
    upload = upload_from_bytes(message, ask, layout, sender)
    try:
        key.verify(upload.signature, upload_content(stated))
    except InvalidSignature as error:
        raise RefusedError(
            f"{sender} signed something else: it saw another question or set of sites; refused"
        ) from error
    return upload


def _pieces(content: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(content[place : place + size] for place in range(0, len(content), size))
