"""Masked sums between real processes that are attacked: by the server, by a site, and by deaths.

One federation of four sites for all tests. Its server keeps all that it gets. In the run "lies" the
server asks for more than it may, and the south lies about its masks; in the run "deaths" the south
and the server kill themselves in the middle of calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.errors import InputError
from fedminmax.network.flare.local import OUTPUT_FILE, LocalFederation, local_federation
from fedminmax.network.secure.messages import UnmaskAsk, from_bytes
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.site.journal import KEPT_FOLDER, Entry, Event, read_journal
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.calls import Endpoint
from fedminmax.network.wire.messages import ORDER_NUMBERS
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from tests.integration.masked_transcript import (
    BOUND,
    Exchange,
    chi_square,
    chi_square_of_two,
    pieces,
    read_transcript,
    unmasked_numbers,
    windows,
)
from tests.integration.other_code.masked_liar import (
    ATTACKED_ROUND,
    BAD_SHARE,
    DEATHS,
    DIES_AT,
    FOLDER_VARIABLE,
    LIES,
    REPLAYS,
    SECOND_KEY,
    SERVER_DIES_IN,
    TELLS_WEST,
)
from tests.integration.other_code_at_south import variables_for
from tests.network.masked_problem import FOUR_SITES, FourSites, listed_config, masked_plan

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
WITHOUT_SOUTH = tuple(site for site in FOUR_SITES if site != "south")
# Without a gap the method goes on to its last round, whatever the data are.
LONG = PlannedRun("fedminmax-fast", {"optimality_gap": "0"}, 20)
# Of the same length, since keys are signed for a run by name.
FIRST, SECOND = "table-1", "table-2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacked")


@pytest.fixture(scope="module")
def plan(folder: Path) -> NetworkPlan:
    # A round may go on without the site that lies.
    plan = masked_plan(listed_config(folder), FOUR_SITES, LONG, same_sites=False)
    return replace(plan, site_rules=replace(plan.site_rules, round_timeout=120.0))


@pytest.fixture(scope="module")
def federation(folder: Path, plan: NetworkPlan) -> Iterator[LocalFederation]:
    assert plan.secure_aggregation is not None
    tables = {
        site: SiteSettings(folder / f"{site}.csv", allow_other_sites=True) for site in FOUR_SITES
    }
    notes = folder / "notes"
    notes.mkdir()
    variables = variables_for("masked_liar", "masked_server") | {FOLDER_VARIABLE: str(notes)}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        with local_federation(folder / "kits", tables) as running:
            yield running


def short(plan: NetworkPlan, name: str, rounds: int) -> NetworkPlan:
    run = PlannedRun("fedminmax", {"learning_rate": "0.3"}, rounds)
    return replace(plan, run=name, runs=(run,))


def transcript(folder: Path, name: str) -> list[Exchange]:
    return read_transcript(folder / "notes" / f"{name}.jsonl")[0]


def log_of(federation: LocalFederation, site: str) -> list[Entry]:
    return read_journal(federation.kits.sites[site] / KEPT_FOLDER)


def rounds_of(federation: LocalFederation, plan: NetworkPlan) -> list[RoundRecord]:
    return read_rounds(run_folder(federation.results(plan), plan, 0) / ROUNDS_FILE)


class TookPart(FourSites):
    """The same sites in this process, unmasked; in each round those answer who took part."""

    def __init__(self, folder: Path, rounds: list[RoundRecord]) -> None:
        super().__init__(folder)
        self._rounds = rounds

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        """One site's answer."""
        if question == "answer":
            order = words["order"]
            assert isinstance(order, bytes)
            number = int(load(order)["numbers"][ORDER_NUMBERS.index("round")])
            if site not in self._rounds[number - 1].sites.took_part:
                raise TimeoutError
        return super().answer(site, question, words)


def assert_model(federation: LocalFederation, plan: NetworkPlan, folder: Path) -> None:
    """The model is the unmasked one over the sites that took part in each round."""
    rounds = rounds_of(federation, plan)
    assert [entry.round for entry in rounds] == list(range(1, plan.runs[0].rounds + 1))
    plain, place = replace(plan, secure_aggregation=None), folder / f"plain-{plan.run}"
    here = folder / f"here-{plan.run}"
    here.mkdir()
    for site in FOUR_SITES:
        (here / f"{site}.csv").write_bytes((folder / f"{site}.csv").read_bytes())
    assert run_plan(plain, TookPart(here, rounds), place).error is None
    found = read_members(run_folder(federation.results(plan), plan, 0))
    right = read_members(run_folder(place, plan, 0))
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


def other_row(row: str) -> str:
    """Another age and the other outcome; people stay in their groups."""
    age, *kept, ill = row.split(",")
    return ",".join([f"{abs(float(age)) ** 1.2:.1f}", *kept, "no" if ill == "yes" else "yes"])


def masked_bytes(calls: list[Exchange], site: str) -> bytes:
    return b"".join(call.numbers for call in calls if call.site == site and call.is_masked)


def test_a_transcript_says_nothing_of_a_site(
    federation: LocalFederation, plan: NetworkPlan, folder: Path
) -> None:
    tables = {site: folder / f"{site}.csv" for site in FOUR_SITES}
    first, second = (replace(plan, run=name) for name in (FIRST, SECOND))
    list(federation.run(first))
    before = {site: path.read_text() for site, path in tables.items()}
    for path in tables.values():
        header, *rows = path.read_text().splitlines()
        path.write_text("\n".join([header, *map(other_row, rows)]) + "\n")
    list(federation.run(second))
    calls = {name: transcript(folder, name) for name in (FIRST, SECOND)}

    # The same kinds of messages, of the same sizes, in the same order at each site.
    def kinds(name: str, site: str) -> list[tuple[str, int]]:
        return [(c.endpoint, len(c.got or b"")) for c in calls[name] if c.site == site]

    for site in FOUR_SITES:
        assert kinds(FIRST, site) == kinds(SECOND, site)
        assert len(kinds(FIRST, site)) > 2 * LONG.rounds
        one, two = (masked_bytes(calls[name], site) for name in (FIRST, SECOND))
        assert chi_square(one) < BOUND
        assert chi_square(two) < BOUND
        assert chi_square_of_two(one, two) < BOUND

    # The same answers without masks fail all of these tests, and none of their numbers came.
    after = plain_answers(calls[SECOND], plan, folder, SECOND)
    for site, path in tables.items():
        path.write_text(before[site])
    at_first = plain_answers(calls[FIRST], plan, folder, FIRST)
    for site in FOUR_SITES:
        one, two = (b"".join(own for own, _ in part[site]) for part in (at_first, after))
        assert chi_square(one) > 20 * BOUND
        assert chi_square(two) > 20 * BOUND
        assert chi_square_of_two(one, two) > BOUND
    for name, answers in ((FIRST, at_first), (SECOND, after)):
        came = windows(b"\n".join(call.got for call in calls[name] if call.got), 8)
        for site in FOUR_SITES:
            true = true_pieces([c for c in calls[name] if c.site == site], answers[site])
            assert len(true) > 100
            assert not true & came


def plain_answers(
    calls: list[Exchange], plan: NetworkPlan, folder: Path, name: str
) -> dict[str, list[tuple[bytes, int]]]:
    """What each site's uploads would have been without masks."""
    plain = replace(plan, secure_aggregation=None)
    return {
        site: list(
            unmasked_numbers(calls, site, plain, folder / f"{site}.csv", folder / f"{name}-{site}")
        )
        for site in FOUR_SITES
    }


def true_pieces(calls: list[Exchange], answers: list[tuple[bytes, int]]) -> set[bytes]:
    """All numbers of a site's answers, as they would travel."""
    uploads = [call for call in calls if call.is_masked]
    assert [len(own) for own, _ in answers] == [len(call.numbers) for call in uploads]
    return {piece for numbers in answers for piece in pieces(*numbers)}


REFUSALS = {
    "threshold in the plan": "totals over 2 of 4 sites were asked for; at least 3",
    "a second plan": "sent a second plan",
    "made-up site": "the keys of 'nowhere' are of no site of the plan",
    "lowered threshold": "the keys of 'east' are not signed by it",
    "second key": "there are two keys of 'east'",
    "too few keys": "keys of 2 sites, at least 3 are needed",
    "the same context": "does not mask it again",
    "a made-up site in the question": "asks sites without keys (nowhere)",
    "two sites": "asks 2 sites, at least 3 were agreed",
    "another round's mask": "but for a mask of",
    "another set": "does not help with a total of other sites",
    "another order": "answered 1 different question about round",
}


def test_a_server_that_asks_for_more_and_a_site_that_lies(
    federation: LocalFederation, plan: NetworkPlan, folder: Path
) -> None:
    lies = short(plan, LIES, ATTACKED_ROUND + 1)
    list(federation.run(lies))
    _, attacks = read_transcript(folder / "notes" / f"{LIES}.jsonl")
    assert {line["attack"] for line in attacks} == REFUSALS.keys()
    for line in attacks:
        # Refused by every site that was asked, and in that site's own log.
        assert line["said"] is not None, line
        assert REFUSALS[line["attack"]] in line["said"]
        reasons = [e.reason for e in log_of(federation, line["site"]) if e.event is Event.REFUSED]
        assert line["said"].removeprefix(f"{line['site']}: ") in reasons
    rounds = {entry.round: entry for entry in rounds_of(federation, lies)}
    for number in (REPLAYS, SECOND_KEY):
        assert rounds[number].sites.took_part == WITHOUT_SOUTH
        assert "south signed something else" in rounds[number].sites.refused["south"]
    assert all(
        entry.sites.took_part == FOUR_SITES
        for number, entry in rounds.items()
        if number not in (REPLAYS, SECOND_KEY)
    )
    # A false seed is replaced by the others' shares; the server's log names who sent it.
    said = (federation.kits.server / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace")
    assert "south sent another seed than it had promised" in said
    assert "south sent another share than 'west' had made" in said
    # With a bad share there is no total: the same sites were asked the same question again.
    asked = [
        call.ask.question.attempt
        for call in transcript(folder, LIES)
        if call.endpoint == "answer"
        and call.site == "west"
        and call.ask.question.round == BAD_SHARE
    ]
    assert asked == [0, 1]
    assert_model(federation, lies, folder)


def test_a_server_that_gives_one_site_other_group_numbers(
    federation: LocalFederation, plan: NetworkPlan, folder: Path
) -> None:
    """With a block of numbers for each site, the total would be a list of every site's counts."""
    told = replace(
        short(plan, TELLS_WEST, 2), secure_aggregation=SecureAggregation(len(FOUR_SITES))
    )
    hasty = replace(told, site_rules=replace(told.site_rules, round_timeout=1.0))
    with pytest.raises(InputError):
        list(federation.run(hasty))
    calls, attacks = read_transcript(folder / "notes" / f"{TELLS_WEST}.jsonl")
    assert {line["site"] for line in attacks} == {*FOUR_SITES}
    for line in attacks:
        assert "did not sign the question" in line["said"]
        reasons = [e.reason for e in log_of(federation, line["site"]) if e.event is Event.REFUSED]
        assert any("did not sign the question" in reason for reason in reasons)
    about = {
        from_bytes(call.asked["message"], UnmaskAsk, "it").question.endpoint
        for call in calls
        if call.endpoint == "unmask" and call.got is not None
    }
    assert about <= {"summarise"}


def test_deaths_before_between_and_after_the_calls(
    federation: LocalFederation, plan: NetworkPlan, folder: Path
) -> None:
    """The engine ends the job of a process that dies; the next one repeats the round.

    How a round goes on without a site is in ``test_flare_masked`` and ``test_masked_sites``.
    """
    deaths = short(plan, DEATHS, SERVER_DIES_IN + 1)
    list(federation.run(deaths))
    noted = {path.name for path in (folder / "notes").iterdir()}
    assert {f"died-{number}" for number in DIES_AT} | {"server-died"} <= noted
    calls = transcript(folder, DEATHS)
    for entry in rounds_of(federation, deaths):
        # Once sites have begun to tell their seeds, the round has the same sites, come what may.
        may_miss = DIES_AT.get(entry.round, (None, False))[0] is Endpoint.ANSWER
        assert entry.sites.took_part in ({FOUR_SITES, WITHOUT_SOUTH} if may_miss else {FOUR_SITES})
    assert_model(federation, deaths, folder)
    # Nothing that left is missing in the log, which has more: what a killed process did not send.
    got = {sha256(call.got).hexdigest() for call in calls if call.site == "south" and call.got}
    left = [e for e in log_of(federation, "south") if e.run == DEATHS and e.event is Event.SENT]
    assert got <= {entry.digest for entry in left}
    not_sent = {(e.endpoint, e.round) for e in left if e.bytes and e.digest not in got}
    assert {(where, number) for number, (where, logged) in DIES_AT.items() if logged} <= not_sent
