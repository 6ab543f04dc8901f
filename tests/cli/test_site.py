"""`fedminmax site request`: a site's key is made at the site, and is never anywhere else.

`fedminmax site log`: every message that left a site, its totals, and what is not one.
"""

import json
import ssl
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fedminmax.cli.main import main
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.secure.session import check_signature, read_authority, read_identity
from fedminmax.network.server.run import run_plan
from fedminmax.network.site.journal import JOURNAL_FILE, KEPT_FOLDER
from fedminmax.network.site.privacy import SPENT_FILE
from tests.cli.kits import DESCRIBED
from tests.network.logged_sites import LoggedSites
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan

SITES = ("north", "south")


def request(tmp_path: Path, site: str, folder: str = "requests") -> int:
    return main(["site", "request", site, "--out", str(tmp_path / folder)])


def _request(site: str, key: rsa.RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def create(tmp_path: Path) -> int:
    described = tmp_path / "federation.toml"
    described.write_text(DESCRIBED, encoding="utf-8")
    words = ["federation", "create", str(described), "--out", str(tmp_path / "kits")]
    return main([*words, "--requests", str(tmp_path / "requests")])


def test_kits_have_certificates_for_keys_that_only_the_sites_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in SITES:
        assert request(tmp_path, site) == 0
    keys = {site: tmp_path / "requests" / f"{site}.key" for site in SITES}
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.values()} == {0o600}
    assert create(tmp_path) == 0
    kits = tmp_path / "kits"
    assert not list((kits / "sites").rglob("*.key"))
    # The authority has keys of its own, of the server and of people, and of no site.
    kept = (kits / "authority" / "cert.json").read_text(encoding="utf-8")
    assert kept.count("PRIVATE KEY") == 2 * (1 + 1 + 2)
    for site, key in keys.items():
        startup = kits / "sites" / site / "startup"
        certificate = startup / "client.crt"
        identity = read_identity(site, key, certificate)
        own = read_authority(startup / "rootCA.pem").check(identity.certificate_bytes, site)
        check_signature(own, identity.sign(b"content"), b"content")
        # The engine's own way to use it.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(certificate, key)
        found = own.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        assert found == x509.SubjectKeyIdentifier.from_public_key(own.public_key())
        assert "has no private key" in (kits / "sites" / site / "README.md").read_text("utf-8")
    capsys.readouterr()


def test_a_site_does_not_start_without_its_own_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in SITES:
        request(tmp_path, site)
    create(tmp_path)
    kit = tmp_path / "kits/sites/north"
    (kit / "local/fedminmax.json").write_text('{"data": "north.csv"}', encoding="utf-8")
    capsys.readouterr()
    assert main(["site", "start", "--kit", str(kit)]) == 2
    assert "copy there the north.key that 'fedminmax site request' made" in capsys.readouterr().err
    wrong = (tmp_path / "requests/south.key").read_bytes()
    (kit / "startup/client.key").write_bytes(wrong)
    assert main(["site", "start", "--kit", str(kit)]) == 2
    assert "does not belong to" in capsys.readouterr().err


def test_a_key_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request(tmp_path, "north")
    before = (tmp_path / "requests/north.key").read_bytes()
    capsys.readouterr()
    assert request(tmp_path, "north") == 2
    assert "keys are made once" in capsys.readouterr().err
    assert (tmp_path / "requests/north.key").read_bytes() == before
    assert request(tmp_path, "../north") == 2
    assert "not a site's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("missing", "south.csr does not exist"),
        ("empty", "is not a certificate request"),
        ("anothers", "is the request of 'north'"),
        ("damaged", "south.csr is not"),
        ("same key", "the requests of 'north' and 'south' have the same key"),
        ("short key", "has no RSA key of at least 2048 bits"),
    ],
)
def test_a_bad_request_is_a_mistake_in_one_line(
    spoil: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request(tmp_path, "north")
    north, south = (tmp_path / "requests" / f"{site}.csr" for site in SITES)
    if spoil == "empty":
        south.write_bytes(b"")
    elif spoil == "anothers":
        south.write_bytes(north.read_bytes())
    elif spoil == "damaged":
        request(tmp_path, "south")
        lines = south.read_text(encoding="utf-8").splitlines()
        lines[-3] = lines[-3][:10] + ("A" if lines[-3][10] != "A" else "B") + lines[-3][11:]
        south.write_text("\n".join(lines), encoding="utf-8")
    elif spoil.endswith("key"):
        key = load_pem_private_key(north.with_suffix(".key").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        short = rsa.generate_private_key(65537, 1024)  # noqa: S505 - that is the point
        south.write_bytes(_request("south", short if spoil == "short key" else key))
    capsys.readouterr()
    assert create(tmp_path) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "kits").exists()


Capture = pytest.CaptureFixture[str]
RUN = PlannedRun("fedminmax", {"learning_rate": "0.1"}, 2)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> LoggedSites:
    """The north has taken part in a masked run and in one that was not; its kit has the log."""
    folder = tmp_path_factory.mktemp("logged")
    for site in ("north", "south"):
        startup = folder / "kits/sites" / site / "startup"
        startup.mkdir(parents=True)
        (startup / "fed_client.json").write_text(json.dumps({"client": {"fqsn": site}}))
    sites = LoggedSites(folder)
    plan = masked_plan(listed_config(folder), FOUR_SITES, RUN)
    assert run_plan(plan, sites, folder / "runs").error is None
    unmasked = LoggedSites(folder)
    open_plan = replace(plan, run="open", secure_aggregation=None)
    assert run_plan(open_plan, unmasked, folder / "open").error is None
    sites.saw += unmasked.saw
    kit = folder / "kits/sites/north"
    (folder / "north-kept").rename(kit / KEPT_FOLDER)
    return sites


def log(sites: LoggedSites, *more: str) -> int:
    return main(["site", "log", "--kit", str(sites.folder / "kits/sites/north"), *more])


def test_the_table_fits_80_columns_and_ends_with_totals(
    sites: LoggedSites, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "80")
    assert log(sites) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    seen = sites.seen("north")
    for question, size, digest in seen:
        # Empty messages are all alike.
        lines = [own for own in shown.splitlines() if digest[:16] in own]
        assert [own for own in lines if question in own and f" {size:,} " in own]
    assert shown.index("left north: test") < shown.index("left north: open")
    words = " ".join(shown.split())
    assert f"{len(seen)} questions answered, 0 refused; {sum(s for _, s, _ in seen):,}" in words
    assert "answer: unmask" in shown
    assert "No privacy budget was spent" in words


def test_the_privacy_budget_is_said(sites: LoggedSites, capsys: Capture) -> None:
    """In the words of the ledger that a site keeps of its promises."""
    line = {"data": "d", "unit": "row", "epsilon": 2.0, "delta": 1e-5}
    more = {"run": "open", "releases": 4, "noise_multiplier": 3.0, "day": "2026-11-17"}
    ledger = sites.folder / "kits/sites/north" / KEPT_FOLDER / SPENT_FILE
    ledger.write_text(json.dumps(line | more) + "\n")
    capsys.readouterr()
    assert log(sites) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Privacy budget spent: run open: epsilon 2, delta 1e-05, unit row." in words
    assert log(sites, "--json") == 0
    budget = json.loads(capsys.readouterr().out.splitlines()[-1])["totals"]["budget"]
    assert budget == [{"run": "open", "unit": "row", "epsilon": 2.0, "delta": 1e-5}]
    ledger.unlink()


def test_lines_for_machines_add_up(sites: LoggedSites, capsys: Capture) -> None:
    capsys.readouterr()
    assert log(sites, "--json", "--run", "test") == 0
    *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
    seen = sites.seen("north")[: len(lines)]
    told = [(_called(own), own["bytes"], own["digest"]) for own in lines]
    assert told == seen
    totals = last["totals"]
    assert totals["answered"] == len(lines)
    assert totals["plain"] == 0
    assert totals["masked"] + totals["without_numbers"] == totals["bytes"]
    assert totals["masked"] == sum(own["bytes"] for own in lines if own.get("masked"))
    assert log(sites, "--json", "--run", "open") == 0
    totals = json.loads(capsys.readouterr().out.splitlines()[-1])["totals"]
    assert (totals["masked"], totals["failed"]) == (0, 0)
    assert totals["plain"] > 0


def _called(line: dict[str, Any]) -> str:
    return str(line.get("call", line["question"]["endpoint"]))


def test_mistakes_are_one_line(sites: LoggedSites, capsys: Capture, tmp_path: Path) -> None:
    capsys.readouterr()
    assert log(sites, "--run", "neither") == 2
    assert "has no run 'neither'; its runs: test, open" in capsys.readouterr().err
    assert main(["site", "log", "--kit", str(tmp_path)]) == 2
    assert "is not a site's kit" in capsys.readouterr().err
    south = sites.folder / "kits/sites/south"
    assert main(["site", "log", "--kit", str(south)]) == 0
    assert capsys.readouterr().out == "Nothing has left south yet.\n"
    (south / KEPT_FOLDER).mkdir()
    (south / KEPT_FOLDER / JOURNAL_FILE).write_text("?\n")
    assert main(["site", "log", "--kit", str(south)]) == 2
    error = capsys.readouterr().err
    assert "journal.jsonl is damaged" in error
    assert error.count("\n") == 1
