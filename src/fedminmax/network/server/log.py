"""The rounds of a run over a network: what is logged of each, and what those who follow it see.

The log has JSON lines with the numbers of each round, who took part, and who did not and why. A
running job tells its ``News``: new rounds, groups, and what it waits for. A coordinator sees rounds
(``LiveRound``) and notices as text (``Notice``). Who is asked in a round,
and how long each may take, depends on how it answered before (``Attendance``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.methods.method import StateT
from fedminmax.network.server.agreement import AGREEMENT_FILE, Agreed, read_agreement
from fedminmax.network.wire.calls import MIN_SECONDS, Transport, present_sites
from fedminmax.network.wire.codec import adapter_of
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, SiteNotes
from fedminmax.training.train import Round

BYTES_OF_LAST_ROUNDS = 2**18
# What the run waits for, while it waits.
NOTICE_FILE = "notice.txt"
# A site may take this many times its longest time so far.
SLOWEST_FACTOR = 10.0


@dataclass
class RoundNotes:
    """What happened in a round: reasons by site, the slowest site's seconds, bytes per site.

    ``absent`` are the sites that are not in a masked total, with the reasons. The bytes of all the
    round's questions and of the longest reply to each are added up.
    """

    refused: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    slowest_seconds: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0


def with_notes(
    record: RoundRecord, done: Round[StateT], plan: NetworkPlan, notes: RoundNotes
) -> RoundRecord:
    """Add to a round's record who was asked, and who stayed away."""
    masked = plan.secure_aggregation is not None
    away = notes.absent if masked else notes.refused
    present = [number for number in done.participants if masked or plan.sites[number] not in away]
    asked = plan.sites if masked else [plan.sites[number] for number in done.participants]
    return replace(
        record,
        participants=tuple(present),
        sites=SiteNotes(
            took_part=tuple(site for site in asked if site not in away),
            refused=away,
            slowest_seconds=round(notes.slowest_seconds, 6),
            bytes_out=notes.bytes_out,
            bytes_in=notes.bytes_in,
        ),
    )


def read_last_rounds(path: Path, after: int = 0) -> list[RoundRecord]:
    """Read the last rounds of a file, for those who look at it again and again."""
    return JsonLog(path, RoundRecord).read_after(after, BYTES_OF_LAST_ROUNDS)


def run_folder(folder: Path, plan: NetworkPlan, number: int) -> Path:
    """Where one of the plan's runs keeps its rounds, checkpoints and result."""
    return folder / f"{number}-{plan.runs[number].method}"


class LiveRound(NamedTuple):
    """The number of the run among the plan's, its round, and the names of the groups.

    ``small_groups`` are those of them that are too small to be trained for.
    """

    run: int
    round: RoundRecord
    groups: tuple[str, ...]
    small_groups: tuple[str, ...] = ()

    @property
    def risks(self) -> dict[str, float]:
        """The known risks by group but for small groups: those of a few rows are mostly noise."""
        return {
            name: risk
            for name, risk in zip(self.groups, self.round.risks, strict=True)
            if risk is not None and name not in self.small_groups
        }


class Notice(NamedTuple):
    """Something that a user should know at once."""

    words: str


Event = LiveRound | Notice


class Attendance:
    """How often and in which round each site was too late, and how long it took otherwise.

    How long a site may take depends on its own times so far. A site that was too late is asked
    again some rounds later, and after twice as many if it is late again, so that a site that is
    gone for good costs little, and a returning one misses at most as many rounds again as it was
    absent.
    """

    def __init__(self, site_rules: SiteRules) -> None:
        self._site_rules = site_rules
        self._longest: dict[str, float] = {}
        self._misses: dict[str, int] = {}
        self._missed_in: dict[str, int] = {}

    def away(self, number: int) -> dict[str, str]:
        """Return the sites that are not asked in this round, each with the reason."""
        return {
            site: f"{site} was too late and is asked again in round {self._next_round(site)}"
            for site in self._misses
            if self._next_round(site) > number
        }

    def find_gone(self, transport: Transport, sites: Sequence[str], number: int) -> list[str]:
        """Return which of these were too late before and are not connected now."""
        doubtful = [site for site in sites if site in self._misses]
        if not doubtful:
            return []
        there = present_sites(transport, doubtful)
        gone = [site for site in doubtful if site not in there]
        for site in gone:
            self.missed(site, number)
        return gone

    def seconds_for(self, site: str) -> float:
        """Return how long this site may take for an answer."""
        limit = self._site_rules.round_timeout
        if site in self._longest:
            limit = min(limit, SLOWEST_FACTOR * self._longest[site])
        return min(self._site_rules.reply_timeout, max(MIN_SECONDS, limit))

    def came(self, site: str, seconds: float) -> None:
        """Note that a site answered after so long."""
        self._longest[site] = max(seconds, self._longest.get(site, 0.0))
        self._misses.pop(site, None)
        self._missed_in.pop(site, None)

    def missed(self, site: str, number: int) -> None:
        """Note that a site was too late in this round; several times in one round count once."""
        if self._missed_in.get(site) != number:
            self._misses[site] = self._misses.get(site, 0) + 1
            self._missed_in[site] = number

    def _next_round(self, site: str) -> int:
        left_out: int = self._site_rules.skip_rounds * 2 ** (self._misses[site] - 1)
        return self._missed_in[site] + left_out + 1


@dataclass(frozen=True)
class PlannedJob:
    """The methods of a job's runs with their rounds, the sites, and the least sites in a total.

    Without a ``threshold`` sums are not masked; without ``privacy`` nothing is promised of rows.
    """

    runs: tuple[tuple[str, int], ...]
    sites: tuple[str, ...]
    threshold: int | None = None
    privacy: Privacy | None = None


@dataclass(frozen=True)
class News:
    """Rounds with the numbers of their runs, the groups' names, and a notice, if there is one.

    ``small_groups`` are those of the groups that are too small to be trained for.
    """

    planned: PlannedJob
    rounds: tuple[tuple[int, RoundRecord], ...] = ()
    groups: tuple[str, ...] = ()
    notice: str | None = None
    small_groups: tuple[str, ...] = ()

    @property
    def live_rounds(self) -> list[LiveRound]:
        """The rounds as a coordinator sees them."""
        return [
            LiveRound(number, entry, self.groups, self.small_groups)
            for number, entry in self.rounds
        ]


class ProgressReporter:
    """Looks for news in a plan's folder, several times in a second."""

    def __init__(self, plan: NetworkPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        threshold = plan.secure_aggregation.threshold if plan.secure_aggregation else None
        runs = [(run.method, run.rounds) for run in plan.runs]
        self._planned = PlannedJob(tuple(runs), plan.sites, threshold, plan.privacy)
        # Agreed on once, before the first round.
        self._agreed: Agreed | None = None

    def collect(self, seen: Sequence[int]) -> News:
        """Return the rounds after those that were seen of each run.

        Of very many new rounds these are the last ones: all of them are in the results.
        """
        rounds = [
            (number, entry)
            for number, last in zip(range(len(self._plan.runs)), seen, strict=False)
            for entry in read_last_rounds(self._rounds_of(number), last)
        ]
        notice = _notice(self._folder / NOTICE_FILE)
        if self._agreed is None:
            self._agreed = read_agreement(self._folder / AGREEMENT_FILE)
        if self._agreed is None:
            return News(self._planned, tuple(rounds), notice=notice)
        encoding = self._agreed.encoding
        return News(
            self._planned,
            tuple(rounds),
            encoding.group_names,
            notice,
            encoding.small_group_names,
        )

    def _rounds_of(self, number: int) -> Path:
        return run_folder(self._folder, self._plan, number) / ROUNDS_FILE


def _notice(path: Path) -> str | None:
    """Read what the run waits for; it removes the file as soon as it no longer waits."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def news_as_json(news: News) -> dict[str, object]:
    """Return the news as plain data."""
    content: dict[str, object] = adapter_of(News).dump_python(news, mode="json")
    return content


def news_from_json(content: Mapping[str, object]) -> News:
    """Read news that a server sent."""
    try:
        news: News = adapter_of(News).validate_python(content)
    except ValidationError as error:
        raise InputError("the server runs another version of fedminmax; use the same") from error
    return news
