"""Masks from keys: two sites share one that cancels in the sum, and each has one of its own.

Bonawitz et al. (2017), "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
section 4: with a secret s_uv for each pair of sites and a seed b_u for each site, u sends

    y_u = x_u + PRG(b_u) + sum_{v after u} PRG(s_uv) - sum_{v before u} PRG(s_uv).

Pairs cancel in the sum over u, and the b_u are taken away once it is agreed whose answers are in
it. Here s_uv comes from X25519 (RFC 7748) by HKDF-SHA256 (RFC 5869) with the context in it, so that
each context has masks of its own, and PRG is the key stream of ChaCha20 (RFC 8439).

A secret in shares: any ``threshold`` of them give it back, fewer say nothing (Shamir 1979).

The secret is the value at 0 of a random polynomial of degree threshold - 1 over a prime field, and
share i is its value at i. Through any threshold - 1 shares and any secret at all goes exactly one
such polynomial, so these shares are equally likely whatever the secret is.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedminmax.network.secure.fixed_point import EXACT_BITS, EXACT_BYTES, Layout, Packed, unpack

KEY_BYTES = 32
TAG_BYTES = 16
# Each key makes one stream or encrypts one message, so that the nonce can always be the same.
NONCE = bytes(16)
SHORT_NONCE = bytes(12)
# The key stream of this many bytes fits into the processor's cache.
CHUNK_BYTES = 2**17
NOTHING = bytes(CHUNK_BYTES)


@dataclass(frozen=True, eq=False)
class SessionKeys:
    """A site's private keys of one session; they are never written anywhere."""

    masking: X25519PrivateKey
    signing: Ed25519PrivateKey

    @classmethod
    def fresh(cls) -> "SessionKeys":
        """Make new ones."""
        return cls(X25519PrivateKey.generate(), Ed25519PrivateKey.generate())

    def shared_with(self, other: bytes) -> bytes:
        """Return the secret that this site shares with the one that has this public key."""
        return self.masking.exchange(X25519PublicKey.from_public_bytes(other))


def digest(purpose: str, *parts: bytes | memoryview) -> bytes:
    """Return the SHA-256 of these parts, each with its length, for one purpose."""
    whole = hashlib.sha256(b"fedminmax masked sums 2")
    for part in (purpose.encode(), *parts):
        whole.update(memoryview(part).nbytes.to_bytes(8, "little"))
        whole.update(part)
    return whole.digest()


def derived_key(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Return a key for one purpose and one context."""
    info = digest(purpose, *parts)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def self_mask_key(seed: bytes) -> bytes:
    """Return the key of a site's own mask."""
    return derived_key(seed, "self")


def key_stream(key: bytes) -> CipherContext:
    """Return what makes the mask of this key."""
    return Cipher(algorithms.ChaCha20(key, NONCE), mode=None).encryptor()


def mask_at(key: bytes, word: int) -> int:
    """Return what the mask of this key adds to one word, by its place."""
    stream = key_stream(key)
    for _ in range(8 * word // CHUNK_BYTES):
        stream.update(NOTHING)
    rest = stream.update(bytes(8 * word % CHUNK_BYTES + 8))
    return int.from_bytes(rest[-8:], "little")


class Sum:
    """Masked numbers that are added up in place.

    Args:
        start: the numbers to begin with; they are copied.
    """

    def __init__(self, start: Packed) -> None:
        self._words, self._widths = start.words.copy(), start.widths
        self._exact = list(start.exact)

    @property
    def packed(self) -> Packed:
        """What has been added up."""
        return Packed(self._words, tuple(self._exact), self._widths)

    def add(self, other: Packed) -> None:
        """Add other numbers of the same layout."""
        self._words += other.words
        self._add_exact(other.exact, 1)

    def add_mask(self, key: bytes, sign: int) -> None:
        """Add the mask of this key, or take it away."""
        stream = key_stream(key)
        content, nothing = bytearray(CHUNK_BYTES), memoryview(NOTHING)
        room, buffer = memoryview(content), np.frombuffer(content, dtype="<u8")
        step = len(buffer)
        for place in range(0, len(self._words), step):
            part = self._words[place : place + step]
            size = 8 * len(part)
            stream.update_into(nothing[:size], room[:size])
            if sign > 0:
                part += buffer[: len(part)]
            else:
                part -= buffer[: len(part)]
        if self._exact:
            mask = stream.update(bytes(EXACT_BYTES * len(self._exact)))
            self._add_exact(exact_from_bytes(mask), sign)

    def _add_exact(self, others: Sequence[int], sign: int) -> None:
        pairs = zip(self._exact, others, strict=True)
        self._exact = [(own + sign * other) % 2**EXACT_BITS for own, other in pairs]


def read_total(layout: Layout, answers: Sequence[Packed], seeds: Sequence[bytes]) -> dict[str, Any]:
    """Return the sections of the sum of masked answers, given the seeds of all sites' own masks."""
    total = Sum(answers[0])
    for answer in answers[1:]:
        total.add(answer)
    for seed in seeds:
        total.add_mask(self_mask_key(seed), -1)
    return unpack(layout, total.packed, len(answers))


def exact_from_bytes(content: bytes) -> tuple[int, ...]:
    """Read numbers of EXACT_BYTES bytes each."""
    return tuple(
        int.from_bytes(content[place : place + EXACT_BYTES], "little")
        for place in range(0, len(content), EXACT_BYTES)
    )


def exact_to_bytes(numbers: Sequence[int]) -> bytes:
    """Write numbers with EXACT_BYTES bytes each."""
    return b"".join(number.to_bytes(EXACT_BYTES, "little") for number in numbers)


def encrypted(key: bytes, content: bytes, about: bytes) -> bytes:
    """Encrypt one message with a key of its own; ``about`` must be the same to read it."""
    return ChaCha20Poly1305(key).encrypt(SHORT_NONCE, content, about)


def decrypted(key: bytes, content: bytes, about: bytes) -> bytes:
    """Read such a message; InvalidTag if it is another one."""
    return ChaCha20Poly1305(key).decrypt(SHORT_NONCE, content, about)


# The prime of X25519: secrets and shares below it have 32 bytes.
PRIME = 2**255 - 19
SECRET_BYTES = 32
SHARE_BYTES = 32


def new_secret() -> int:
    """Draw a secret."""
    return secrets.randbelow(PRIME)


def deal(secret: int, shares: int, threshold: int, prime: int = PRIME) -> dict[int, int]:
    """Return the shares 1, 2, ..., each a number below the prime."""
    polynomial = [secret, *(secrets.randbelow(prime) for _ in range(threshold - 1))]
    return {place: _value(polynomial, place, prime) for place in range(1, shares + 1)}


def restore(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret from as many shares as the threshold: Lagrange's formula at 0."""
    secret = 0
    for place, share in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != place:
                above = above * other % prime
                below = below * (other - place) % prime
        secret += share * above * pow(below, -1, prime)
    return secret % prime


def _value(polynomial: list[int], place: int, prime: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * place + coefficient) % prime
    return value
