"""Only sites that the federation's authority certified take part, each with one key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from fedminmax.core.errors import InputError
from fedminmax.network.secure.fixed_point import Layout
from fedminmax.network.secure.masks import SessionKeys
from fedminmax.network.secure.messages import Agreed, Ask, question_digest, to_bytes
from fedminmax.network.secure.secure_site import SecureSite
from fedminmax.network.secure.session import (
    Entry,
    Identity,
    Roster,
    Terms,
    entry_of,
    read_authority,
    read_identity,
)
from fedminmax.network.site.journal import Journal
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import threshold_for
from tests.network.secure.masked_sites import (
    FIRST,
    LAYOUT,
    SITES,
    MaskedSites,
    certifier,
    federation_certifier,
    kit,
    terms_for,
)


def entries(sites: MaskedSites) -> dict[str, Entry]:
    return {name: Entry.model_validate_json(site.keys()) for name, site in sites.masked.items()}


def signed_by(identity: Identity, terms: Terms) -> Entry:
    return entry_of(identity, SessionKeys.fresh(), terms)


def made_up_site(known: dict[str, Entry]) -> list[Entry]:
    return [*known.values(), signed_by(federation_certifier().identity("nowhere"), terms_for())]


def forged_certificate(known: dict[str, Entry]) -> list[Entry]:
    return [*(known | {"west": signed_by(certifier().identity("west"), terms_for())}).values()]


def anothers_certificate(known: dict[str, Entry]) -> list[Entry]:
    own = replace(kit("south"), site="west")
    return [*(known | {"west": signed_by(own, terms_for())}).values()]


def expired_certificate(known: dict[str, Entry]) -> list[Entry]:
    old = federation_certifier().identity("west", days=-1)
    return [*(known | {"west": signed_by(old, terms_for())}).values()]


def second_key(known: dict[str, Entry]) -> list[Entry]:
    return [*known.values(), signed_by(kit("west"), terms_for())]


def swapped_key(known: dict[str, Entry]) -> list[Entry]:
    fresh = signed_by(kit("west"), terms_for())
    wrong = known["west"].model_copy(update={"masking": fresh.masking})
    return [*(known | {"west": wrong}).values()]


def same_key_twice(known: dict[str, Entry]) -> list[Entry]:
    keys = SessionKeys.fresh()
    both = {name: entry_of(kit(name), keys, terms_for()) for name in ("south", "west")}
    return [*(known | both).values()]


def lower_threshold(known: dict[str, Entry]) -> list[Entry]:
    own = signed_by(kit("west"), replace(terms_for(), threshold=3))
    return [*(known | {"west": own}).values()]


def other_plan(known: dict[str, Entry]) -> list[Entry]:
    own = signed_by(kit("west"), replace(terms_for(), plan="other"))
    return [*(known | {"west": own}).values()]


def other_run(known: dict[str, Entry]) -> list[Entry]:
    return [*(known | {"west": signed_by(kit("west"), terms_for(run="run-2"))}).values()]


def other_sites(known: dict[str, Entry]) -> list[Entry]:
    own = signed_by(kit("west"), replace(terms_for(), sites=(*SITES, "nowhere")))
    return [*(known | {"west": own}).values()]


def too_few(known: dict[str, Entry]) -> list[Entry]:
    return list(known.values())[:3]


def not_me(known: dict[str, Entry]) -> list[Entry]:
    return [*(known | {"east": signed_by(kit("east"), terms_for())}).values()]


def no_key(known: dict[str, Entry]) -> list[Entry]:
    keys = known["west"].model_copy(update={"masking": bytes(32)})
    signed = keys.model_copy(update={"signature": kit("west").sign(keys.signed)})
    return [*(known | {"west": signed}).values()]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (made_up_site, "'nowhere' are of no site of the plan"),
        (forged_certificate, "'west' is not from this federation's authority"),
        (anothers_certificate, r"certificate of 'west' is for \['south'\]"),
        (expired_certificate, "'west' has expired"),
        (second_key, "two keys of 'west'"),
        (swapped_key, "'west' are not signed by it"),
        (same_key_twice, "key of 'west' is another site's, too"),
        (lower_threshold, r"'west' received another threshold \(3\)"),
        (other_plan, r"'west' received another plan \(other\)"),
        (other_run, r"'west' received another run \(run-2\)"),
        (other_sites, "'west' received another sites"),
        (too_few, "keys of 3 sites, at least 4"),
        (not_me, "other keys of this site than it made"),
        (no_key, "the key of 'west' is not a valid key"),
    ],
)
def test_a_false_roster_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Entry]], list[Entry]], reason: str
) -> None:
    sites = MaskedSites(tmp_path)
    roster = Roster(entries=tuple(change(entries(sites))))
    with pytest.raises(RefusedError, match=reason) as refused:
        sites.masked["east"].set_roster(roster.model_dump_json().encode())
    assert "\n" not in str(refused.value)
    with pytest.raises(RefusedError, match="before all sites' keys"):
        sites.masked["east"].answer(b"", _ask(sites))


def _ask(sites: MaskedSites) -> bytes:
    return to_bytes(Ask(FIRST, sites.terms.sites))


def test_a_roster_does_not_change_within_a_session(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    known = entries(sites)
    first = Roster(entries=tuple(known.values())).model_dump_json().encode()
    fewer = Roster(entries=tuple(known.values())[:4]).model_dump_json().encode()
    east = sites.masked["east"]
    east.set_roster(first)
    east.set_roster(first)
    with pytest.raises(RefusedError, match="changed the sites' keys within a session"):
        east.set_roster(fewer)


def test_a_session_may_begin_without_a_site_that_is_away(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    sites.gone = {"west": "keys"}
    roster, totals = sites.open()
    assert roster.sites == SITES[:4]
    assert sites.ask(totals).sites == SITES[:4]


@pytest.mark.parametrize(
    ("sites", "threshold"), [(SITES, 2), (SITES[:3], 2), (SITES, 6), ((*SITES, "west"), 4)]
)
def test_a_threshold_that_protects_nobody_is_refused(
    tmp_path: Path, sites: tuple[str, ...], threshold: int
) -> None:
    terms = Terms("run-1", "0123abcd", sites, threshold)
    authority = federation_certifier().authority
    with pytest.raises(RefusedError, match="threshold of"):
        SecureSite(kit("east"), authority, terms, Journal(tmp_path))


def test_thresholds_withstand_a_third_of_the_sites() -> None:
    """2 (t - c) > K - c for c = floor(K/3) colluding sites, and over half always."""
    for sites in range(3, 60):
        default, colluding = threshold_for(sites), sites // 3
        assert 2 * (default - colluding) > sites - colluding
        assert 3 <= default <= sites


def test_a_site_of_another_plan_does_not_join(tmp_path: Path) -> None:
    authority = federation_certifier().authority
    with pytest.raises(RefusedError, match="without this site, 'west'"):
        SecureSite(kit("west"), authority, terms_for(SITES[:4]), Journal(tmp_path))


def _write(identity: Identity, folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "client.key", folder / "client.crt"
    form = PrivateFormat.TraditionalOpenSSL
    key.write_bytes(identity.key.private_bytes(Encoding.PEM, form, NoEncryption()))
    certificate.write_bytes(identity.certificate.public_bytes(Encoding.PEM))
    return key, certificate


def test_an_identity_is_read_from_its_files(tmp_path: Path) -> None:
    key, certificate = _write(kit("west"), tmp_path)
    root = tmp_path / "rootCA.pem"
    root.write_bytes(federation_certifier().authority.root.public_bytes(Encoding.PEM))
    own = read_identity("west", key, certificate)
    checked = read_authority(root).check(own.certificate_bytes, "west")
    assert checked == kit("west").certificate
    assert isinstance(checked, x509.Certificate)


def test_a_key_without_its_certificate_is_refused(tmp_path: Path) -> None:
    _, certificate = _write(kit("west"), tmp_path)
    (tmp_path / "south").mkdir()
    key, _ = _write(kit("south"), tmp_path / "south")
    with pytest.raises(InputError, match="does not belong to"):
        read_identity("west", key, certificate)
    with pytest.raises(InputError, match="cannot be read"):
        read_identity("west", tmp_path / "none", certificate)


def test_questions_are_told_apart_by_their_parts() -> None:
    """Parts that are cut elsewhere are another question, and so is another rounding."""
    whole = question_digest(Agreed(b"ab", b"c"), LAYOUT, b"d")
    assert whole == question_digest(Agreed(b"ab", b"c"), LAYOUT, b"d")
    for other in (Agreed(b"a", b"bc"), Agreed(b"ab", b"c", b"d"), Agreed(b"ab", b"c", rate=b"d")):
        assert whole != question_digest(other, LAYOUT, b"d")
    step, counts = LAYOUT.sections
    finer = Layout((replace(step, exponent=step.exponent + 1), counts))
    assert whole != question_digest(Agreed(b"ab", b"c"), finer, b"d")
