"""Certificate requests: a site makes its own key, so that nobody else ever has it.

A site writes a key and a request for a certificate (PKCS #10, RFC 2986), and sends the request. Its
kit then holds the certificate that the federation's authority made for that request, and no key:
the site adds its own. So the maker of the kits cannot speak as the site, unless it certifies
another key in the site's name.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes, write_json, write_secret
from fedminmax.network.flare.federation_file import AUTHORITY_FILE, SITE_NAME
from fedminmax.network.secure.session import read_identity

# As the engine's own keys.
KEY_BITS = 2048
PUBLIC_EXPONENT = 65537
KEY_FILE = "client.key"
CERTIFICATE_FILE = "client.crt"


def write_request(site: str, folder: Path) -> tuple[Path, Path]:
    """Make a site's key and its request for a certificate; nothing is written over."""
    if SITE_NAME.fullmatch(site) is None:
        raise InputError(f"'{site[:100]}' is not a site's name; use letters, digits and -")
    key_path, request_path = folder / f"{site}.key", folder / f"{site}.csr"
    for path in (key_path, request_path):
        if path.exists():
            raise InputError(f"{path} exists; give another folder with --out: keys are made once")
    key = rsa.generate_private_key(PUBLIC_EXPONENT, KEY_BITS)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_secret(key_path, secret)
    write_bytes(request_path, request.public_bytes(serialization.Encoding.PEM))
    return key_path, request_path


def read_requests(folder: Path, sites: Iterable[str]) -> dict[str, x509.CertificateSigningRequest]:
    """Read the requests of all these sites, NAME.csr each."""
    found = {site: _read_request(folder / f"{site}.csr", site) for site in sites}
    keys: dict[bytes, str] = {}
    for site, request in found.items():
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        own = request.public_key().public_bytes(serialization.Encoding.DER, form)
        if own in keys:
            raise InputError(f"the requests of '{keys[own]}' and '{site}' have the same key")
        keys[own] = site
    return found


def _read_request(path: Path, site: str) -> x509.CertificateSigningRequest:
    advice = f"ask {site} for what 'fedminmax site request {site}' writes"
    if not path.is_file():
        raise InputError(f"{path} does not exist; {advice}")
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
        names = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        valid = request.is_signature_valid
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InputError(f"{path} is not a certificate request; {advice}") from error
    if not valid:
        raise InputError(f"{path} is not signed with its own key; {advice}")
    if [str(name.value) for name in names] != [site]:
        found = ", ".join(str(name.value) for name in names)[:100]
        raise InputError(f"{path} is the request of '{found}'; {advice}")
    key = request.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < KEY_BITS:
        raise InputError(f"{path} has no RSA key of at least {KEY_BITS} bits; {advice}")
    return request


def certify_requests(
    authority: Path,
    kits: Mapping[str, Path],
    requests: Mapping[str, x509.CertificateSigningRequest],
) -> None:
    """Put certificates for these requests into new kits, and drop the keys that came with them."""
    path = authority / AUTHORITY_FILE
    state = json.loads(path.read_text(encoding="utf-8"))
    signer = serialization.load_pem_private_key(state["root_pri_key"].encode(), password=None)
    if not isinstance(signer, rsa.RSAPrivateKey):
        raise InputError("the engine made an authority without an RSA key; use nvflare 2.9")
    for site, request in requests.items():
        startup = kits[site] / "startup"
        made = x509.load_pem_x509_certificate((startup / CERTIFICATE_FILE).read_bytes())
        own = _with_key_of(request, made, signer).public_bytes(serialization.Encoding.PEM)
        (startup / KEY_FILE).unlink()
        write_bytes(startup / CERTIFICATE_FILE, own)
        state[site] = {"cert": own.decode()}
    write_json(path, state)


def _with_key_of(
    request: x509.CertificateSigningRequest, made: x509.Certificate, signer: rsa.RSAPrivateKey
) -> x509.Certificate:
    """Return the engine's certificate, but for the request's key."""
    key = request.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(made.subject)
        .issuer_name(made.issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
    )
    for extension in made.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(key)
        builder = builder.add_extension(value, critical=extension.critical)
    return builder.sign(signer, hashes.SHA256())


def check_own_key(kit: Path, site: str) -> None:
    """Refuse a kit without its site's key, or with another's."""
    key, certificate = kit / "startup" / KEY_FILE, kit / "startup" / CERTIFICATE_FILE
    if not key.exists():
        raise InputError(
            f"{key} does not exist; copy there the {site}.key that 'fedminmax site request' made"
        )
    read_identity(site, key, certificate)
