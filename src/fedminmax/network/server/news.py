"""What a running job tells those who follow it: new rounds, groups, what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.network.server.agreement import AGREEMENT_FILE, Agreed, read_agreement
from fedminmax.network.server.log import LiveRound, read_last_rounds
from fedminmax.network.server.remote import NOTICE_FILE
from fedminmax.network.server.run import run_folder
from fedminmax.network.wire.codec import adapter_of
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord


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
