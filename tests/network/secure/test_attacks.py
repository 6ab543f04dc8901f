"""What a server may try to learn more than one total, and how each site refuses it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedminmax.network.secure.fixed_point import Layout, pack
from fedminmax.network.secure.messages import (
    Ask,
    Total,
    UnmaskAsk,
    Unmasked,
    from_bytes,
    to_bytes,
    upload_from_bytes,
)
from fedminmax.network.site.journal import JOURNAL_FILE, Journal
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.codec import RefusedError
from tests.network.secure.masked_sites import (
    FIRST,
    LAYOUT,
    ORDER,
    SITES,
    MaskedSites,
    limits_for,
    terms_for,
)

FOUR = SITES[:4]
SECOND = replace(FIRST, attempt=1)


class Attacker:
    """A server that may send anything to anybody."""

    def __init__(self, folder: Path) -> None:
        self.sites = MaskedSites(folder)
        self.roster, _ = self.sites.open()
        self.uploads: dict[Question, dict[str, bytes]] = {}
        self.signatures: dict[Question, dict[str, bytes]] = {}

    def upload(
        self,
        context: Question,
        asked: tuple[str, ...],
        order: bytes = ORDER,
        orders: Mapping[str, bytes] | None = None,
    ) -> None:
        """Get masked answers; with ``orders`` some sites see another order."""
        ask = Ask(context, asked)
        self.uploads[context] = {
            site: self.sites.masked[site].answer((orders or {}).get(site, order), to_bytes(ask))
            for site in asked
        }
        self.signatures[context] = {
            site: upload_from_bytes(upload, ask, LAYOUT, site).signature
            for site, upload in self.uploads[context].items()
        }

    def unmask(
        self,
        context: Question,
        site: str,
        signatures: Mapping[str, bytes] | None = None,
        gone: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> Unmasked:
        signed = self.signatures[context] if signatures is None else signatures
        message = to_bytes(UnmaskAsk(context, signed, gone or {}))
        return from_bytes(self.sites.masked[site].unmask(message), Unmasked, site)

    def sealed(self, context: Question, asked: tuple[str, ...], owner: str) -> dict[str, bytes]:
        """The shares that a site made for the others."""
        upload = upload_from_bytes(self.uploads[context][owner], Ask(context, asked), LAYOUT, owner)
        others = [site for site in asked if site != owner]
        return dict(zip(others, upload.shares, strict=True))


@pytest.fixture
def attacker(tmp_path: Path) -> Attacker:
    return Attacker(tmp_path)


def test_two_sets_of_survivors(attacker: Attacker) -> None:
    """All signed both before anything was unmasked: the difference would be west's answer."""
    for context, asked in ((FIRST, SITES), (SECOND, FOUR)):
        attacker.upload(context, asked)
    attacker.unmask(SECOND, "east")
    with pytest.raises(RefusedError, match="does not help with a total of other sites"):
        attacker.unmask(FIRST, "east")
    # Not even with a share of another's seed.
    gone = {"mid": attacker.sealed(FIRST, SITES, "mid")}
    with pytest.raises(RefusedError, match="does not help with a total of other sites"):
        attacker.unmask(FIRST, "east", gone=gone)


def test_a_late_upload_of_an_attempt_that_was_given_up(attacker: Attacker) -> None:
    """West's first upload comes when the others have unmasked a total without it."""
    attacker.upload(FIRST, SITES)
    attacker.upload(SECOND, FOUR)
    for site in FOUR:
        attacker.unmask(SECOND, site)
    # All five have signed the first attempt. West helps with it, since it helped with no other.
    gone = {site: attacker.sealed(FIRST, SITES, site) for site in FOUR}
    shares = attacker.unmask(FIRST, "west", gone=gone).shares
    # For west alone each of the others' seeds has one share, and four are needed.
    assert shares.keys() == set(FOUR)
    for site in FOUR:
        with pytest.raises(RefusedError, match="does not help with a total of other sites"):
            attacker.unmask(FIRST, site)


def test_a_further_attempt_with_other_sites_after_a_total(attacker: Attacker) -> None:
    attacker.upload(FIRST, SITES)
    attacker.unmask(FIRST, "east")
    with pytest.raises(RefusedError, match="does not help with a total of other sites"):
        attacker.upload(SECOND, FOUR)


def test_two_attempts_with_two_orders(attacker: Attacker) -> None:
    """Another model under the same round's name."""
    for context, order in ((FIRST, ORDER), (SECOND, b"another model")):
        attacker.upload(context, SITES, order)
    attacker.unmask(FIRST, "east")
    with pytest.raises(RefusedError, match="does not help with a total of another question"):
        attacker.unmask(SECOND, "east")


def test_two_attempts_with_two_roundings(attacker: Attacker) -> None:
    """Numbers that each site rounds to multiples of 256 show who has the large ones."""
    attacker.upload(FIRST, SITES)
    step, counts = LAYOUT.sections
    for site in attacker.sites.masked.values():
        site.layout = Layout((replace(step, exponent=-8), counts))
    attacker.upload(SECOND, SITES)
    attacker.unmask(FIRST, "east")
    with pytest.raises(RefusedError, match="does not help with a total of another question"):
        attacker.unmask(SECOND, "east")


@pytest.mark.parametrize("field", ["plan", "encoding", "sizes", "rate"])
def test_whatever_decides_an_answer_is_bound_to_its_masks(field: str, attacker: Attacker) -> None:
    """One byte that a single site was told otherwise: nobody unmasks, and no masks cancel."""
    site = attacker.sites.masked["west"]
    site.agreed = replace(site.agreed, **{field: b"other"})
    attacker.upload(FIRST, SITES)
    for asked, stranger in (("east", "west"), ("west", "east")):
        with pytest.raises(RefusedError, match=f"'{stranger}' did not sign the question"):
            attacker.unmask(FIRST, asked)


def test_the_same_context_twice(attacker: Attacker) -> None:
    """Two answers under the same masks: their difference would be without any."""
    attacker.upload(FIRST, SITES)
    for order in (ORDER, b"another model"):
        with pytest.raises(RefusedError, match="does not mask it again"):
            attacker.upload(FIRST, SITES, order)


def test_a_question_under_another_name(attacker: Attacker) -> None:
    """A site knows itself which question it answers."""
    for other in (
        replace(FIRST, round=2),
        replace(FIRST, run=1),
        replace(FIRST, phase=1),
        replace(FIRST, endpoint=Endpoint.VALIDATE),
    ):
        with pytest.raises(RefusedError, match="but for a mask of"):
            attacker.upload(other, SITES)


def test_different_orders_at_different_sites(attacker: Attacker) -> None:
    """Each would tell of its own model; the signatures show it before anything is unmasked."""
    attacker.upload(FIRST, SITES, orders={"west": b"a model that only west sees"})
    for site, stranger in (("east", "west"), ("west", "east")):
        with pytest.raises(RefusedError, match=f"'{stranger}' did not sign the question"):
            attacker.unmask(FIRST, site)


def test_different_sites_told_to_different_sites(attacker: Attacker) -> None:
    """East believes in five sites, the others in four."""
    signatures = {}
    for site, asked in (("east", SITES), *((site, FOUR) for site in FOUR[1:])):
        ask = Ask(FIRST, asked)
        upload = attacker.sites.masked[site].answer(ORDER, to_bytes(ask))
        signatures[site] = upload_from_bytes(upload, ask, LAYOUT, site).signature
    with pytest.raises(RefusedError, match="'east' did not sign"):
        attacker.unmask(FIRST, "mid", signatures)
    with pytest.raises(RefusedError, match="with 4 signatures of 5"):
        attacker.unmask(FIRST, "east", signatures)


def test_fewer_sites_than_were_agreed(attacker: Attacker) -> None:
    with pytest.raises(RefusedError, match="asks 3 sites, at least 4 were agreed"):
        attacker.upload(FIRST, SITES[:3])


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ((*FOUR, "nowhere"), r"sites without keys \(nowhere\)"),
        ((*FOUR, "south"), "in another order"),
        ((*FOUR[::-1], "west"), "in another order"),
    ],
)
def test_sites_that_are_none(attacker: Attacker, asked: tuple[str, ...], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        attacker.sites.masked["east"].answer(ORDER, to_bytes(Ask(FIRST, asked)))


def test_a_total_without_the_site_that_is_asked(attacker: Attacker) -> None:
    with pytest.raises(RefusedError, match="that it is not part of"):
        attacker.sites.masked["west"].answer(ORDER, to_bytes(Ask(FIRST, FOUR)))


def test_arrivals_of_some_alone(attacker: Attacker) -> None:
    """West was asked, and its answer is said to be lost."""
    attacker.upload(FIRST, SITES)
    signed = attacker.signatures[FIRST]
    for site in FOUR:
        with pytest.raises(RefusedError, match="with 4 signatures of 5"):
            attacker.unmask(FIRST, site, {own: signed[own] for own in FOUR})


def test_an_attempt_that_nobody_answered(attacker: Attacker) -> None:
    attacker.upload(FIRST, SITES)
    with pytest.raises(RefusedError, match="no masked answer"):
        attacker.unmask(SECOND, "east", attacker.signatures[FIRST])


def test_without_all_signatures(attacker: Attacker) -> None:
    attacker.upload(FIRST, SITES)
    signed = attacker.signatures[FIRST]
    with pytest.raises(RefusedError, match="with 4 signatures of 5"):
        attacker.unmask(FIRST, "east", {site: signed[site] for site in FOUR})
    with pytest.raises(RefusedError, match="'west' did not sign"):
        attacker.unmask(FIRST, "east", signed | {"west": signed["east"]})


def test_signatures_of_another_attempt(attacker: Attacker) -> None:
    for context in (FIRST, SECOND):
        attacker.upload(context, SITES)
    mixed = attacker.signatures[SECOND] | {"west": attacker.signatures[FIRST]["west"]}
    with pytest.raises(RefusedError, match="'west' did not sign"):
        attacker.unmask(SECOND, "east", mixed)


def test_shares_are_bound_to_owner_recipient_and_attempt(attacker: Attacker) -> None:
    """A share that was made for another attempt would unmask an answer that was given up."""
    for context in (FIRST, SECOND):
        attacker.upload(context, SITES)
    old, new = (attacker.sealed(context, SITES, "west") for context in (FIRST, SECOND))
    for gone in (
        {"west": {"east": old["east"]}},
        {"west": {"east": new["mid"]}},
        {"mid": {"east": new["east"]}},
    ):
        with pytest.raises(RefusedError, match="not one that it made for this site and this"):
            attacker.unmask(SECOND, "east", gone=gone)
    without: list[dict[str, dict[str, bytes]]] = [{"west": {}}, {"nowhere": new}]
    for missing in without:
        with pytest.raises(RefusedError, match="which sent none"):
            attacker.unmask(SECOND, "east", gone=missing)
    assert attacker.unmask(SECOND, "east", gone={"west": new}).shares.keys() == {"west"}


def test_seeds_of_earlier_questions_are_forgotten(attacker: Attacker) -> None:
    attacker.upload(FIRST, SITES)
    later = replace(FIRST, round=2)
    for site in SITES:
        secure, values = attacker.sites.masked[site].secure, attacker.sites.masked[site].values
        secure.mask(Ask(later, SITES), later, partial(pack, LAYOUT, values), bytes(32))
    with pytest.raises(RefusedError, match="no masked answer"):
        attacker.unmask(FIRST, "east")


TOTAL = Total("00", SITES)


def journal_of(folder: Path, run: str = "run-1") -> Journal:
    journal = Journal(folder)
    journal.begin(run, "plan", "table", limits_for(terms_for()))
    return journal


def test_the_journal_outlives_the_process(tmp_path: Path) -> None:
    journal_of(tmp_path).allow_mask("1", FIRST, TOTAL)
    again = journal_of(tmp_path)
    with pytest.raises(RefusedError, match="does not mask it again"):
        again.allow_mask("1", FIRST, TOTAL)
    again.allow_mask("1", SECOND, TOTAL)
    again.allow_unmask("1", SECOND, TOTAL)
    later = journal_of(tmp_path)
    later.allow_unmask("another session", FIRST, TOTAL)
    for other in (Total("00", FOUR), Total("01", SITES)):
        with pytest.raises(RefusedError, match="does not help with a total"):
            later.allow_unmask("another session", FIRST, other)
    journal_of(tmp_path, "run-2").allow_unmask("1", FIRST, TOTAL)


def test_jobs_at_the_same_time_share_the_journal(tmp_path: Path) -> None:
    one, two = journal_of(tmp_path), journal_of(tmp_path)
    one.allow_mask("1", FIRST, TOTAL)
    two.allow_mask("2", FIRST, TOTAL)
    one.allow_unmask("1", FIRST, TOTAL)
    with pytest.raises(RefusedError, match="does not help with a total of other sites"):
        two.allow_unmask("2", FIRST, Total("00", FOUR))


def test_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    journal_of(tmp_path).allow_mask("1", FIRST, TOTAL)
    path = tmp_path / JOURNAL_FILE
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "unma')
    later = journal_of(tmp_path)
    later.allow_mask("1", SECOND, TOTAL)
    with pytest.raises(RefusedError, match="does not mask it again"):
        journal_of(tmp_path).allow_mask("1", SECOND, TOTAL)
    damaged = journal_of(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "unma"}\n')
    with pytest.raises(RefusedError, match="journal is damaged"):
        damaged.allow_mask("1", replace(FIRST, round=2), TOTAL)
