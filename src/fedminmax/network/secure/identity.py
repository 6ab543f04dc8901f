"""Who a site is: its kit's key and certificate, checked against the federation's authority.

Keys that are made for one session are signed with the kit's key. Whoever checks such a signature
asks for a certificate that the federation's own root has issued for this very site, so that a
server can neither invent a site nor speak as one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from fedminmax.core.errors import InputError
from fedminmax.network.wire.codec import RefusedError

PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
ECDSA = ec.ECDSA(hashes.SHA256())
KitKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, eq=False)
class Identity:
    """A site's name, its kit's private key, and the certificate that goes with it."""

    site: str
    key: KitKey
    certificate: x509.Certificate

    @property
    def certificate_bytes(self) -> bytes:
        """The certificate as DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        """Sign with whatever kind of key the kit has."""
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(content, PADDING, hashes.SHA256())
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(content, ECDSA)
        return self.key.sign(content)


@dataclass(frozen=True, eq=False)
class Authority:
    """The root certificate of a federation."""

    root: x509.Certificate

    def check(self, certificate: bytes, site: str) -> x509.Certificate:
        """Return this site's certificate; refuse one that is not from here, or another's."""
        try:
            own = x509.load_der_x509_certificate(certificate)
            own.verify_directly_issued_by(self.root)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise RefusedError(
                f"the certificate of '{site}' is not from this federation's authority; refused"
            ) from error
        names = [
            str(entry.value)
            for entry in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        ]
        if names != [site]:
            raise RefusedError(f"the certificate of '{site}' is for {names}; refused")
        if not own.not_valid_before_utc <= datetime.now(UTC) <= own.not_valid_after_utc:
            raise RefusedError(f"the certificate of '{site}' has expired or is not valid yet")
        return own


def check_signature(certificate: x509.Certificate, signature: bytes, content: bytes) -> None:
    """Raise InvalidSignature unless the certificate's key has signed this content."""
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, content, PADDING, hashes.SHA256())
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, content, ECDSA)
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, content)
    else:
        raise InvalidSignature


def read_identity(site: str, key: Path, certificate: Path) -> Identity:
    """Read a site's private key and certificate (PEM)."""
    advice = "copy the kit again, or ask the coordinator for it"
    try:
        own = serialization.load_pem_private_key(key.read_bytes(), password=None)
        certified = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{key} or {certificate} cannot be read; {advice}") from error
    if not isinstance(own, KitKey):
        raise InputError(f"{key} is not an RSA, EC or Ed25519 key; {advice}")
    if own.public_key() != certified.public_key():
        raise InputError(f"{certificate} does not belong to {key}; {advice}")
    return Identity(site, own, certified)


def read_authority(root: Path) -> Authority:
    """Read the federation's root certificate (PEM)."""
    try:
        return Authority(x509.load_pem_x509_certificate(root.read_bytes()))
    except (OSError, ValueError) as error:
        raise InputError(f"{root} cannot be read; copy the kit again") from error
