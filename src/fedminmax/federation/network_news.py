"""What a running job tells its coordinator: its new rounds, its groups, and what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.network_log import ROUNDS_FILE, NetworkRound, read_last_rounds
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.network_run import NOTICE_FILE, run_folder


@dataclass(frozen=True)
class News:
    """Rounds with the numbers of their runs, the groups' names, and a notice, if there is one."""

    rounds: tuple[tuple[int, NetworkRound], ...] = ()
    groups: tuple[str, ...] = ()
    notice: str | None = None


def collect_news(plan: NetworkPlan, folder: Path, seen: Sequence[int]) -> News:
    """Return the rounds after those that were seen of each run.

    Of very many new rounds these are the last ones: all of them are in the results.
    """
    rounds = [
        (number, entry)
        for number in range(len(plan.runs))
        for entry in read_last_rounds(run_folder(folder, plan, number) / ROUNDS_FILE)
        if number < len(seen) and entry.round > seen[number]
    ]
    agreed = read_agreement(folder / AGREEMENT_FILE)
    return News(
        tuple(rounds),
        () if agreed is None else agreed.encoding.group_names,
        _notice(folder / NOTICE_FILE),
    )


def _notice(path: Path) -> str | None:
    """Read what the run waits for; it removes the file as soon as it no longer waits."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def news_as_json(news: News) -> dict[str, object]:
    """Return the news as plain data."""
    content: dict[str, object] = TypeAdapter(News).dump_python(news, mode="json")
    return content


def news_from_json(content: Mapping[str, object]) -> News:
    """Read news that a server sent."""
    try:
        return TypeAdapter(News).validate_python(content)
    except ValidationError as error:
        raise InputError("the server runs another version of fedminmax; use the same") from error
