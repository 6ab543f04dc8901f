"""How many sites may help the server: two totals of one question would tell of single sites.

Real keys, masks and shares; the colluding sites sign, mask and disclose whatever the server wants.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fedminmax.network.secure.masks import SECRET_BYTES, Sum, restore, self_mask_key
from fedminmax.network.secure.messages import (
    Ask,
    UnmaskAsk,
    Unmasked,
    Upload,
    from_bytes,
    to_bytes,
    upload_from_bytes,
)
from fedminmax.network.secure.session import Terms, check_terms
from fedminmax.network.site.journal import Journal, tells_too_much
from fedminmax.network.wire.calls import Question
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import threshold_for
from tests.network.secure.masked_sites import FIRST, LAYOUT, ORDER, SEVEN, MaskedSites, terms_for


class Careless(Journal):
    """The journal of a site that helps the server: it allows everything."""

    def allow_mask(self, session: str, question: Question, total: object) -> None:
        """Allow it."""

    def allow_unmask(self, session: str, question: Question, total: object) -> None:
        """Allow it."""


def withstood(sites: int) -> int:
    """How many colluding sites the threat model says are withstood."""
    threshold = threshold_for(sites)
    return min(2 * threshold - sites - 1, threshold - 2)


def total_of(
    federation: MaskedSites, ask: Ask, uploads: dict[str, Upload], helpers: Sequence[str]
) -> list[float] | None:
    """Take the masks off with the help of these sites; None if seeds are missing."""
    others = {site: [own for own in ask.sites if own != site] for site in ask.sites}
    sealed = {
        owner: dict(zip(others[owner], uploads[owner].shares, strict=True)) for owner in ask.sites
    }
    signatures = {site: upload.signature for site, upload in uploads.items()}
    message = to_bytes(UnmaskAsk(ask.question, signatures, sealed))
    told = {}
    for site in helpers:
        try:
            told[site] = from_bytes(federation.masked[site].unmask(message), Unmasked, site)
        except RefusedError:
            continue
    total, seeds = Sum(uploads[ask.sites[0]].packed), {}
    for site in ask.sites[1:]:
        total.add(uploads[site].packed)
    for owner in ask.sites:
        if owner in told:
            seeds[owner] = told[owner].seed
            continue
        shares = {
            ask.sites.index(site) + 1: int.from_bytes(own.shares[owner], "big")
            for site, own in told.items()
        }
        if len(shares) < federation.terms.threshold:
            return None
        some = dict(list(shares.items())[: federation.terms.threshold])
        seeds[owner] = restore(some).to_bytes(SECRET_BYTES, "big")
    for seed in seeds.values():
        total.add_mask(self_mask_key(seed), -1)
    steps = total.packed.words.view(np.int64)[:4].astype(float)
    return list(np.ldexp(steps, -LAYOUT.sections[0].exponent))


def two_totals(folder: Path, number: int, colluding: int) -> list[list[float] | None]:
    """Ask all sites, and all but an honest one; half of the honest ones help with each."""
    names = tuple(sorted(SEVEN)[:number])
    federation = MaskedSites(folder, terms_for(names))
    federation.open()
    helpers, honest = names[:colluding], names[colluding:]
    for site in helpers:
        federation.masked[site].secure._journal = Careless(folder / site)
    fewer = tuple(site for site in names if site != honest[-1])
    asks = (Ask(FIRST, names), Ask(replace(FIRST, attempt=1), fewer))
    uploads = [
        {
            site: upload_from_bytes(
                federation.masked[site].answer(ORDER, to_bytes(ask)), ask, LAYOUT, site
            )
            for site in ask.sites
        }
        for ask in asks
    ]
    # Those who are in both help with the smaller total, as far as it needs them.
    needed = federation.terms.threshold - colluding
    first, second = honest[::-1][: len(honest) - needed], honest[:needed]
    return [
        total_of(federation, asks[0], uploads[0], (*helpers, *first)),
        total_of(federation, asks[1], uploads[1], (*helpers, *second)),
    ]


@pytest.mark.parametrize("sites", [3, 4, 5, 7])
def test_the_server_and_as_many_sites_as_we_say_get_one_total(sites: int, tmp_path: Path) -> None:
    if sites - 1 < threshold_for(sites):
        # A total without one site is below the threshold, whoever helps.
        with pytest.raises(RefusedError, match="at least 3 were agreed"):
            two_totals(tmp_path, sites, withstood(sites))
        return
    found = two_totals(tmp_path, sites, withstood(sites))
    assert [total is None for total in found].count(False) <= 1


@pytest.mark.parametrize("sites", [4, 7])
def test_one_more_is_one_too_many(sites: int, tmp_path: Path) -> None:
    """The attack is a real one: the difference of the two totals is one honest site's answer."""
    colluding = 2 * threshold_for(sites) - sites
    whole, without = two_totals(tmp_path, sites, colluding)
    assert whole is not None
    assert without is not None
    victim = tuple(sorted(SEVEN)[:sites])[-1]
    answer = MaskedSites(tmp_path / "victim", terms_for()).masked
    if victim in answer:
        difference = np.array(whole) - np.array(without)
        np.testing.assert_allclose(difference, answer[victim].values["step"], atol=1e-9)


@pytest.mark.parametrize("sites", [3, 4, 5, 7])
def test_by_default_every_honest_site_has_to_help(sites: int, tmp_path: Path) -> None:
    """All but two collude, and one of the two does not help: its mask stays on."""
    names = tuple(sorted(SEVEN)[:sites])
    federation = MaskedSites(tmp_path, replace(terms_for(names), threshold=sites))
    federation.open()
    ask = Ask(FIRST, names)
    uploads = {
        site: upload_from_bytes(own.answer(ORDER, to_bytes(ask)), ask, LAYOUT, site)
        for site, own in federation.masked.items()
    }
    assert total_of(federation, ask, uploads, names[:-1]) is None
    assert total_of(federation, ask, uploads, names) is not None


def test_what_the_threat_model_says() -> None:
    numbers = (3, 4, 5, 7, 10)
    assert [withstood(sites) for sites in numbers] == [1, 1, 2, 2, 3]
    # By default all sites of a plan are in a total, and a plan has at least the threshold's.
    assert [threshold_for(sites) - 2 for sites in numbers] == [1, 1, 2, 3, 5]


@pytest.mark.parametrize(("sites", "threshold"), [(5, 3), (7, 4), (4, 2), (10, 6)])
def test_sites_insist_on_two_thirds(sites: int, threshold: int) -> None:
    """More than half is not enough: with one helper of five, two sets of three share a site."""
    names = tuple(f"site-{number}" for number in range(sites))
    with pytest.raises(RefusedError, match="it must be at least"):
        check_terms(Terms("run", "plan", names, threshold))


def test_sets_of_sites_whose_totals_combine_to_few() -> None:
    """By the definition: is there a combination that is about fewer sites than the threshold?"""
    everyone = frozenset("abcdefg")
    assert not tells_too_much([], everyone, 5)
    for left_out in everyone:
        assert tells_too_much([everyone], everyone - {left_out}, 5)
    generator = np.random.default_rng(4)
    answers = []
    for _ in range(300):
        threshold = int(generator.integers(2, 5))
        *earlier, new = (
            frozenset(f"site-{place}" for place in np.flatnonzero(generator.random(6) < 0.6))
            for _ in range(int(generator.integers(1, 4)))
        )
        answers.append(tells_too_much(earlier, new, threshold))
        assert answers[-1] is (fewest_sites(earlier, new) < threshold)
    assert {*answers} == {True, False}


def fewest_sites(earlier: Sequence[frozenset[str]], new: frozenset[str]) -> int:
    """About how few sites a combination can be, by trying: 0/1 matrices need small numbers."""
    everyone = sorted(frozenset().union(new, *earlier))
    counts = []
    for numbers in product(range(-3, 4), repeat=len(earlier) + 1):
        if numbers[-1]:
            pairs = [*zip(numbers, (*earlier, new), strict=True)]
            about = [sum(number for number, own in pairs if site in own) for site in everyone]
            counts.append(sum(map(bool, about)))
    return min(counts)
