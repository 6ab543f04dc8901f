"""Totals of masked answers equal plain sums, whoever drops out and whenever."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedminmax.network.secure.fixed_point import FailedSitesError, Kind, Layout, Section
from fedminmax.network.secure.masks import SECRET_BYTES, SHARE_BYTES, mask_at, self_mask_key
from fedminmax.network.secure.messages import (
    Ask,
    Traced,
    Unmasked,
    from_bytes,
    to_bytes,
    upload_from_bytes,
)
from fedminmax.network.secure.totals import MaskedTotal, NoTotalError
from fedminmax.network.site.journal import JOURNAL_FILE, read_journal
from tests.network.secure.masked_sites import (
    FIRST,
    LAYOUT,
    SEVEN,
    SITES,
    MaskedSites,
    terms_for,
)


def assert_total(total: MaskedTotal, sites: MaskedSites, of: tuple[str, ...]) -> None:
    plain = sites.plain_total(of)
    assert total.sites == of
    np.testing.assert_array_equal(total.values["counts"], plain["counts"])
    np.testing.assert_allclose(total.values["step"], plain["step"], rtol=0, atol=2.0**-38)


@pytest.mark.parametrize("kind", ["gone", "lost"])
@pytest.mark.parametrize(("question", "counted"), [("answer", SITES[:4]), ("unmask", SITES)])
def test_a_site_may_go_at_any_moment(
    tmp_path: Path, kind: str, question: str, counted: tuple[str, ...]
) -> None:
    """Until all have answered, the others go on without it; after that its answer counts."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    setattr(sites, kind, {"west": question})
    total = sites.ask(totals)
    assert_total(total, sites, counted)
    assert total.failures == {"west": "west did not answer in time"}
    assert total.late == ({"west"} if question == "answer" else set())


def test_nobody_has_gone(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    total = sites.ask(totals)
    assert_total(total, sites, SITES)
    assert not total.failures
    assert [question for question, _ in sites.calls[2:]] == ["answer", "unmask"]


def test_sites_may_go_one_after_another(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path, terms_for(SEVEN))
    _, totals = sites.open()
    sites.gone = {"west": "answer", "south": "unmask"}
    total = sites.ask(totals)
    assert_total(total, sites, tuple(s for s in SEVEN if s != "west"))
    assert set(total.failures) == {"west", "south"}


def test_too_few_are_left_for_a_total(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.gone = {"west": "answer", "south": "answer"}
    with pytest.raises(NoTotalError, match=r"3 sites are left .* at least 4") as error:
        sites.ask(totals)
    assert set(error.value.failures) == {"west", "south"}
    sites.all_back()
    assert_total(sites.ask(totals), sites, SITES)


def test_too_few_shares_are_left_until_the_sites_are_back(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.gone = {"west": "unmask", "south": "unmask"}
    with pytest.raises(NoTotalError, match="'south' has gone, and 3 of 4 shares"):
        sites.ask(totals)
    # Three sites have told their seeds: they help with no other total of this question.
    with pytest.raises(NoTotalError):
        sites.ask(totals, SITES[:4])
    sites.all_back()
    assert_total(sites.ask(totals), sites, SITES)


def test_a_site_that_was_killed_and_started_again(tmp_path: Path) -> None:
    """It has no keys of this session any more; its record is as it was."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    first = sites.ask(totals)
    for site in SITES:
        sites.restart(site)
    with pytest.raises(NoTotalError, match="before all sites' keys"):
        sites.ask(totals)
    _, later = sites.open()
    # A server that goes on from its checkpoint asks again, and gets the same.
    again = sites.ask(later)
    for name in ("step", "counts"):
        np.testing.assert_array_equal(first.values[name], again.values[name])
    with pytest.raises(NoTotalError, match="does not help with a total of other sites"):
        sites.ask(later, SITES[:4])
    with pytest.raises(NoTotalError, match="does not help with a total of another question"):
        sites.ask(later, order=b"another model")


def test_one_site_that_is_killed_after_its_upload(tmp_path: Path) -> None:
    """Its seed is gone with its process; the others' shares give it back."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()

    def restart(message: bytes) -> bytes:
        sites.restart("west")
        return message

    sites.lies = {("west", "answer"): restart}
    total = sites.ask(totals)
    assert_total(total, sites, SITES)
    assert "no masked answer" in total.failures["west"]


def test_sites_that_went_while_others_took_long_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four of five needed, nobody could replace both of them after the first seed."""
    sites = MaskedSites(tmp_path, terms_for(SEVEN))
    _, totals = sites.open()
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    sites.gone = {"east": "present", "mid": "present"}
    total = sites.ask(totals)
    assert_total(total, sites, SEVEN[2:])
    assert total.late == {"east", "mid"}
    assert total.failures["east"] == "east is no longer connected"
    asked = [own for question, own in sites.calls if question == "present"]
    # Those that answered last need not be asked.
    assert asked[0] == SEVEN[:5]


def test_totals_do_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    """Nor on the masks: two federations with the same answers have the same total, bit for bit."""
    found = []
    for name, seed in (("first", 5), ("second", 5)):
        sites = MaskedSites(tmp_path / name, seed=seed)
        _, totals = sites.open()
        found.append(sites.ask(totals).values["step"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": np.full(4, -1e12), "counts": np.array([1, 2])},
        {"step": np.full(4, np.inf), "counts": np.array([1, 2])},
        {"step": np.full(4, np.nan), "counts": np.array([1, 2])},
        {"step": np.ones(4), "counts": np.array([2**61, 2])},
    ],
)
def test_a_site_without_an_answer_says_so_under_its_masks(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    """The server learns how many have failed; nothing of the others' numbers, and no name."""
    sites = MaskedSites(tmp_path)
    sites.masked["west"].values = wrong
    _, totals = sites.open()
    with pytest.raises(FailedSitesError, match="1 of 5 sites could not compute an answer") as said:
        sites.ask(totals)
    assert "west" not in str(said.value)
    uploads = [message for _, asked, message in sites.transcript if asked == "answer"]
    sizes = {len(message) for message in uploads if isinstance(message, bytes)}
    assert len(sizes) == 1


def other_seed(message: bytes) -> bytes:
    return to_bytes(replace(from_bytes(message, Unmasked, ""), seed=bytes(SECRET_BYTES)))


def other_shares(message: bytes) -> bytes:
    told = from_bytes(message, Unmasked, "")
    return to_bytes(replace(told, shares=dict.fromkeys(told.shares, bytes(SHARE_BYTES))))


def no_message(message: bytes) -> bytes:
    return message[:-5]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (other_seed, "mid sent another seed than it had promised"),
        (other_shares, "mid sent another share than 'west' had made"),
        (no_message, "mid sent no valid Unmasked"),
    ],
)
def test_a_site_that_unmasks_wrongly_is_named_and_not_needed(
    tmp_path: Path, lie: Callable[[bytes], bytes], reason: str
) -> None:
    sites = MaskedSites(tmp_path, terms_for(SEVEN))
    _, totals = sites.open()
    sites.gone = {"west": "unmask"}
    sites.lies = {("mid", "unmask"): lie}
    total = sites.ask(totals)
    assert_total(total, sites, SEVEN)
    assert total.failures["mid"].startswith(reason)


def test_a_site_that_made_bad_shares_and_went_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    monkeypatch.setattr(
        "fedminmax.network.secure.secure_site.deal",
        lambda _, shares, __: {n + 1: n for n in range(shares)},
    )
    sites.gone = {"west": "unmask"}
    with pytest.raises(NoTotalError, match="'west' has gone, and had made bad shares"):
        sites.ask(totals)


def test_a_replayed_upload_is_refused_by_name(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    kept: list[bytes] = []

    def replay(message: bytes) -> bytes:
        kept.append(message)
        return kept[0]

    sites.lies = {("west", "answer"): replay}
    assert_total(sites.ask(totals), sites, SITES)
    with pytest.raises(NoTotalError, match="west signed something else: it saw another question"):
        sites.ask(totals)


def test_an_upload_that_is_not_signed_is_refused_by_name(tmp_path: Path) -> None:
    def flipped(message: bytes) -> bytes:
        """Another signature of the right length."""
        return message[:-2] + bytes([message[-2] ^ 1]) + message[-1:]

    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.lies = {("west", "answer"): flipped}
    total = sites.ask(totals)
    assert_total(total, sites, SITES[:4])
    assert "another question or set of sites" in total.failures["west"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "west sent a masked answer of 0 bytes"),
        (b"\0", "west sent a masked answer of 1 bytes"),
        (b"\0\0\2", "west sent a masked answer of 3 bytes"),
        (bytes(10_000), r"west sent a masked answer of 10,000 bytes"),
    ],
)
def test_an_upload_that_is_none_is_refused_by_name(
    tmp_path: Path, message: bytes, reason: str
) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.lies = {("west", "answer"): lambda _: message}
    total = sites.ask(totals)
    assert_total(total, sites, SITES[:4])
    assert total.failures["west"].startswith(reason)


@pytest.mark.parametrize("admits", [True, False])
def test_a_site_that_masks_wrongly_gives_no_total_and_is_named(
    tmp_path: Path, *, admits: bool
) -> None:
    """Either it tells the masks that it used, or others than those it shares with everybody."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    joined = sites.masked["west"].secure._joined
    assert joined is not None
    wrong = dict.fromkeys(joined.secrets, bytes(32))
    sites.masked["west"].secure._joined = replace(joined, secrets=wrong)
    if admits:

        def honest_again(_: bytes) -> bytes:
            sites.masked["west"].secure._joined = joined
            return sites.masked["west"].secure.trace(FIRST)

        sites.lies = {("west", "trace"): honest_again}
    with pytest.raises(NoTotalError, match="masks of this total do not cancel") as error:
        sites.ask(totals)
    blamed = error.value.failures
    if admits:
        assert blamed == {"west": "west masked wrongly"}
    else:
        assert blamed["west"].startswith("west and ")
        assert all("west" in reason for reason in blamed.values())


def test_a_trace_tells_nothing_of_an_honest_site(tmp_path: Path) -> None:
    """It is the masks of one word, which is 1 at every honest site."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.ask(totals)
    told = {
        site: from_bytes(own.secure.trace(FIRST), Traced, site).words
        for site, own in sites.masked.items()
    }
    ask = Ask(FIRST, SITES)
    for number, site in enumerate(SITES):
        message = next(m for s, q, m in sites.transcript if (s, q) == (site, "answer"))
        words = upload_from_bytes(message, ask, LAYOUT, site).packed.words
        word = int(words[-1])
        for other in told[site]:
            assert told[site][other] == told[other][site]
            word -= told[site][other] * (1 if number < SITES.index(other) else -1)
        seed = sites.masked[site].secure._masked[FIRST].seed
        assert (word - mask_at(self_mask_key(seed), len(words) - 1)) % 2**64 == 1


def test_exact_sums_travel_masked(tmp_path: Path) -> None:
    """A census column of every size, exactly; nothing of it is to be seen in the uploads."""
    sites = MaskedSites(tmp_path)
    layout = Layout((Section("counts", 1, Kind.COUNT), Section("sums", 2, Kind.EXACT)))
    for place, site in enumerate(sites.masked.values()):
        sums = [Fraction(0.1) ** 2 * (place - 2), Fraction(1e300) ** 2 + Fraction(5e-324) ** 2]
        site.values, site.layout = {"counts": torch.tensor([place]), "sums": sums}, layout
    _, totals = sites.open()
    sites.gone = {"west": "unmask"}
    total = sites.ask(totals, layout=layout)
    assert total.values["counts"].tolist() == [10]
    assert total.values["sums"] == [
        Fraction(0),
        5 * (Fraction(1e300) ** 2 + Fraction(5e-324) ** 2),
    ]


def test_the_record_says_what_was_masked_and_unmasked(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    sites.gone = {"west": "answer"}
    sites.ask(totals)
    entries = read_journal(tmp_path / "east")
    told = [(entry.event, entry.question.attempt, len(entry.sites)) for entry in entries]
    assert told == [
        ("allowed", 0, 0),
        ("masked", 0, 5),
        ("masked", 1, 4),
        ("unmasked", 1, 4),
    ]
    assert {entry.question.endpoint for entry in entries} == {"prepare", "answer"}
    lines = (tmp_path / "east" / JOURNAL_FILE).read_text(encoding="utf-8")
    assert LAYOUT.sections[0].name not in lines


def test_all_bytes_are_counted(tmp_path: Path) -> None:
    """What each site sends: 8 for a number and two more, 96 and 64 per other site, and a seed."""
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    total = sites.ask(totals)
    sent = {
        (site, question): len(message)
        for site, question, message in sites.transcript
        if isinstance(message, bytes)
    }
    assert {sent[site, "answer"] for site in SITES} == {8 * (6 + 2) + 96 + 64 * 4}
    assert total.bytes_in == max(sent[site, "answer"] + sent[site, "unmask"] for site in SITES)
