"""A federation of real processes with a hostile server and a hostile site, while a run is held."""

import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.flare.coordinator import read_job
from fedminmax.network.flare.kits import COORDINATOR, ONE_PERSON, write_site_settings
from fedminmax.network.flare.local import OUTPUT_FILE, LocalFederation, local_federation
from fedminmax.network.server.log import Event, LiveRound
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import ROUNDS_FILE
from tests.integration.other_code.held_rounds import FOLDER_VARIABLE
from tests.integration.other_code_at_south import OTHER_CODE, HeldRounds
from tests.network.network_problem import SITES, plan_of, write_tables

MEMBER = "member@fedminmax.org"
ROUNDS, HELD_ROUND = 3, 2
SECONDS = 120.0
SECONDS_OF_AN_ATTACK = 3.0
SERVER_KIT = "localhost"
CODE = Path(__file__).parent / "engine_code"


@dataclass(frozen=True)
class Attack:
    """A message that a process of ``source`` sends: to whom, and what.

    ``origin`` is whom it says that it is from, if not from itself; JOB stands for the job's number.
    ``streamed`` is in which of the engine's two ways it is sent. With a ``command`` it is one of
    the engine's commands for a site, with these headers.
    """

    source: str
    to: str
    channel: str
    topic: str
    payload: object = None
    command: str | None = None
    command_headers: Mapping[str, object] = field(default_factory=dict)
    origin: str | None = None
    conn_url: str | None = None
    headers: Mapping[str, object] = field(default_factory=dict)
    streamed: bool = False
    seconds: float = SECONDS_OF_AN_ATTACK


@dataclass(frozen=True)
class Said:
    """What came back: the engine's code, and the content as text."""

    code: str
    text: str


@dataclass(eq=False)
class HostileFederation:
    """The federation, its held run, and what hostile processes are told to send."""

    federation: LocalFederation
    plan: NetworkPlan
    puppets: Path
    held: HeldRounds
    events: list[Event] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def job(self) -> str:
        """The running job's number."""
        place = self.federation.folder / "coordinator" / self.plan.run
        return read_job(place) or ""

    def send(self, attacks: Sequence[Attack]) -> list[Said]:
        """Let processes send messages, all at once, and return what came back."""
        files = [self._ask(attack) for attack in attacks]
        for path in files:
            wait_for(path.exists)
        return [Said(**json.loads(path.read_text())) for path in files]

    def _ask(self, attack: Attack) -> Path:
        path = self.puppets / attack.source / f"{next(self.numbers)}.ask"
        partial = path.with_suffix(".new")
        partial.write_text(json.dumps(asdict(attack)).replace("JOB", self.job))
        partial.rename(path)
        return path.with_suffix(".got")

    def kit(self, participant: str) -> Path:
        """The kit of a site, or of the server."""
        if participant == SERVER_KIT:
            return self.federation.kits.server
        return self.federation.kits.sites[participant]

    def output(self, participant: str) -> str:
        """What all processes of a participant have written to their log."""
        return (self.kit(participant) / OUTPUT_FILE).read_text(errors="replace")

    def is_logged(self, participant: str, *words: str) -> bool:
        """Whether one line of the log has all these words."""
        lines = self.output(participant).splitlines()
        return any(all(word in line for word in words) for line in lines)

    def handlers(self) -> set[tuple[str, str, str]]:
        """Kind of process, channel and topic of each handler that the engine has registered."""
        lines = (self.puppets / "handlers.jsonl").read_text().splitlines()
        return {tuple(json.loads(line)) for line in lines}


def wait_for(question: Callable[[], bool]) -> None:
    """Wait until this is so."""
    deadline = time.monotonic() + SECONDS
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def table_in_kit(kit: Path) -> Path:
    """Where the honest site's table is: the engine's shell reads below the kit."""
    return kit / "north.csv"


@contextmanager
def hostile_federation(folder: Path) -> Iterator[HostileFederation]:
    """Start it, and a run that waits in its second round; let the run end after the block."""
    config = read_config(write_tables(folder))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, ROUNDS)])
    held = HeldRounds(folder / "held")
    held.folder.mkdir()
    held.hold(HELD_ROUND)
    paths = [str(CODE), str(OTHER_CODE), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "PYTHONPATH": os.pathsep.join(paths),
        FOLDER_VARIABLE: str(held.folder),
        "FEDMINMAX_TEST_PUPPETS": str(folder / "puppets"),
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        tables = {site: SiteSettings(folder / f"{site}.csv") for site in SITES}
        people = ONE_PERSON | {MEMBER: "member"}
        with local_federation(folder / "kits", tables, people) as federation:
            kit = federation.kits.sites["north"]
            shutil.copyfile(folder / "north.csv", table_in_kit(kit))
            write_site_settings(kit, SiteSettings(table_in_kit(kit)))
            hostile = HostileFederation(federation, plan, folder / "puppets", held)
            thread = threading.Thread(target=lambda: hostile.events.extend(federation.run(plan)))
            thread.start()
            try:
                # The run waits in its second round: all processes of all participants are there.
                wait_for(lambda: (hostile.puppets / "localhost-job").exists())
                wait_for(lambda: (hostile.puppets / "south-job").exists())
                wait_for(lambda: _has_rounds(hostile))
                yield hostile
            finally:
                held.let_go(HELD_ROUND)
                thread.join(SECONDS)


def _has_rounds(hostile: HostileFederation) -> bool:
    rounds = hostile.federation.results(hostile.plan).rglob(ROUNDS_FILE)
    return any(path.read_text() for path in rounds)


def finished(hostile: HostileFederation) -> list[int]:
    """The rounds that the run had."""
    return [event.round.round for event in hostile.events if isinstance(event, LiveRound)]


def coordinator_kit(hostile: HostileFederation) -> Path:
    """The kit of who may submit."""
    return hostile.federation.kits.people[COORDINATOR]
