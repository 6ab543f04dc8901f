"""The sites of a federation, signed when their kits are made, so that nobody can invent one later.

A plan names its sites. A site that insists on company must know that the others exist: each kit
holds the list of all sites, signed with the key that certified them (RSA-PSS, RFC 8017).
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import load_pem_x509_certificate

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json

ROSTER_FILE = "roster.json"
AUTHORITY_CERTIFICATE = "rootCA.pem"
# What the engine's provisioning keeps of the authority.
AUTHORITY_FILE = "cert.json"
PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


def write_rosters(authority: Path, sites: Sequence[str], kits: Iterable[Path]) -> None:
    """Sign the list of sites with the authority's key and put it into these kits."""
    content = json.loads((authority / AUTHORITY_FILE).read_text(encoding="utf-8"))
    key = serialization.load_pem_private_key(content["root_pri_key"].encode(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError("the engine made an authority without an RSA key; use nvflare 2.9")
    signature = key.sign(_signed(sites), PADDING, hashes.SHA256())
    roster = {"sites": list(sites), "signature": b64encode(signature).decode()}
    for kit in kits:
        write_json(kit / "startup" / ROSTER_FILE, roster)


def read_roster(kit: Path) -> tuple[str, ...]:
    """Return the sites of this kit's federation."""
    path = kit / "startup" / ROSTER_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sites = [str(site) for site in content["sites"]]
        _verify(b64decode(content["signature"]), sites, kit)
    except (ValueError, KeyError, TypeError, OSError, InvalidSignature) as error:
        raise InputError(
            f"{path} is missing, damaged or not signed by this federation's authority; copy the "
            "kit again"
        ) from error
    return tuple(sites)


def _verify(signature: bytes, sites: Sequence[str], kit: Path) -> None:
    authority = (kit / "startup" / AUTHORITY_CERTIFICATE).read_bytes()
    key = load_pem_x509_certificate(authority).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise InvalidSignature
    key.verify(signature, _signed(sites), PADDING, hashes.SHA256())


def _signed(sites: Sequence[str]) -> bytes:
    """Return what the signature is of."""
    return b"fedminmax roster\n" + json.dumps(sorted(sites)).encode()
