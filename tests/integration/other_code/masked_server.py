"""A server with other code: it keeps all that it gets, attacks in one run, and dies in another."""

import json
import os
import signal
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from nvflare.collab import collab
from safetensors.numpy import load, save

from fedminmax.network.secure.messages import (
    SIGNATURE_BYTES,
    Ask,
    UnmaskAsk,
    from_bytes,
    to_bytes,
)
from fedminmax.network.server import remote
from fedminmax.network.wire import calls
from fedminmax.network.wire.calls import Answer, Endpoint, Question

# The site's other code is in the same folder, which is on the path of these processes alone.
LIAR: Any = import_module("masked_liar")
SECONDS_TO_RETURN = 120.0
ATTACK_SECONDS = 60.0


def install(server: Any) -> None:
    """Stand between the server and its sites."""
    server.ask_sites = OtherServer(server.ask_sites, Path(os.environ[LIAR.FOLDER_VARIABLE]))
    # A site that died is noticed sooner.
    calls.POLL_SECONDS = 1.0
    modules: tuple[Any, ...] = (server, calls)
    for module in modules:
        module.PRESENCE_TIMEOUT = 3.0
    remote.SECONDS_BETWEEN_TRIES = 0.5


class OtherServer:
    """Asks the sites what the server asks, and more."""

    def __init__(self, honest: Any, folder: Path) -> None:
        self._honest, self._folder = honest, folder
        self._run = ""
        self._order: Mapping[str, object] = {}
        self._dropped = False
        self._prepared: dict[str, UnmaskAsk] = {}
        self._second_plan: dict[str, object] = {}

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: str,
        payload: Mapping[str, object],
        limits: Mapping[str, float],
    ) -> Iterator[Answer]:
        """Ask the sites."""
        if endpoint == "present":
            yield from self._honest(sites, endpoint, payload, limits)
            return
        if endpoint == "prepare":
            self._run = json.loads(_bytes(payload["plan"]))["run"]
        if endpoint == "answer":
            self._order = payload
        about = _context(endpoint, payload)
        self._before(sites, endpoint, payload, about)
        asked = [site for site in sites if not self._drops(site, endpoint, about)]
        alike, got = asked, {}
        if self._run == LIAR.TELLS_WEST and endpoint == "encode":
            alike = [site for site in asked if site != "west"]
            yield from self._honest(["west"], endpoint, _other_groups(payload), limits)
        for answer in self._honest(alike, endpoint, payload, limits):
            got[answer.site] = answer
            self._keep(endpoint, payload, answer)
            self._maybe_die(endpoint, about)
            yield answer
        if self._run == LIAR.TELLS_WEST and endpoint == "count_rows" and about is not None:
            signed = UnmaskAsk(about, _signatures(got), {})
            self._attack("another encoding", sites, "unmask", {"message": to_bytes(signed)})
        for site in sites:
            if site not in asked:
                yield Answer(site, failure=f"{site} did not answer in time", late=True)
        if (
            self._run == LIAR.LIES
            and endpoint == "unmask"
            and _is_round(about, LIAR.ATTACKED_ROUND)
        ):
            self._unmask_more(sites)

    def _drops(self, site: str, endpoint: str, about: Question | None) -> bool:
        """One seed gets lost in the round in which a site sends bad shares."""
        lost = (self._run, site, endpoint) == (LIAR.LIES, "west", "unmask")
        if not lost or not _is_round(about, LIAR.BAD_SHARE) or (self._folder / "dropped").exists():
            return False
        (self._folder / "dropped").touch()
        return True

    def _before(
        self,
        sites: Sequence[str],
        endpoint: str,
        payload: Mapping[str, object],
        about: Question | None,
    ) -> None:
        if self._run == LIAR.DEATHS and endpoint == "answer" and about is not None:
            self._wait_for_the_dead(about.round)
        if self._run != LIAR.LIES:
            return
        if endpoint == "prepare":
            plan = json.loads(_bytes(payload["plan"]))
            self._second_plan = {"plan": _json(plan | {"run": "second"})}
            plan["secure_aggregation"]["threshold"] = 2
            self._attack("threshold in the plan", sites, endpoint, {"plan": _json(plan)})
        elif endpoint == "keys":
            self._attack("a second plan", sites, "prepare", self._second_plan)
        elif endpoint == "set_roster":
            self._attack_the_roster(sites, json.loads(_bytes(payload["roster"])))
        elif endpoint == "unmask" and _is_round(about, LIAR.ATTACKED_ROUND):
            self._ask_more(sites)

    def _wait_for_the_dead(self, number: int) -> None:
        """Begin no further round before the site is back, which takes a new job."""
        until = time.monotonic() + SECONDS_TO_RETURN
        dead = self._folder / LIAR.DEAD
        while dead.exists() and int(dead.read_text()) < number and time.monotonic() < until:
            if collab.is_aborted:
                break
            time.sleep(0.05)

    def _attack_the_roster(self, sites: Sequence[str], roster: dict[str, Any]) -> None:
        first, *others = roster["entries"]
        stranger = first | {"site": "nowhere"}
        lowered = first | {"terms": first["terms"] | {"threshold": 2}}
        second = first | {"masking": others[0]["masking"]}
        for name, entries in (
            ("made-up site", [*roster["entries"], stranger]),
            ("lowered threshold", [lowered, *others]),
            ("second key", [*roster["entries"], second]),
            ("too few keys", roster["entries"][:2]),
        ):
            self._attack(name, sites, "set_roster", {"roster": _json({"entries": entries})})

    def _ask_more(self, sites: Sequence[str]) -> None:
        """Get further uploads of the same round, before anything of it is unmasked."""
        ask = from_bytes(self._order["secure"], Ask, "it")
        honest = dict(self._order)
        fewer, other = replace(ask.question, attempt=10), replace(ask.question, attempt=11)
        survivors = Ask(fewer, ask.sites[:3])
        self._gather("another set", survivors, honest)
        moved = load(_bytes(honest["order"]))
        moved["parameters"] = moved["parameters"] + 0.5
        changed = honest | {"order": save(moved)}
        secure = {"secure": to_bytes(Ask(other, ask.sites))}
        self._attack("another order", sites, "answer", changed | secure)
        for name, asked in (
            ("the same context", ask),
            ("a made-up site in the question", replace(ask, sites=(*ask.sites[:3], "nowhere"))),
            ("two sites", replace(ask, sites=ask.sites[:2])),
            ("another round's mask", replace(ask, question=replace(ask.question, round=1))),
        ):
            own = [site for site in sites if site in asked.sites]
            self._attack(name, own, "answer", honest | {"secure": to_bytes(asked)})

    def _gather(self, name: str, ask: Ask, payload: Mapping[str, object]) -> None:
        got = self._call(ask.sites, "answer", {**payload, "secure": to_bytes(ask)})
        self._prepared[name] = UnmaskAsk(ask.question, _signatures(got), {})

    def _unmask_more(self, sites: Sequence[str]) -> None:
        """Ask for a second total of the same round, each with all its signatures."""
        for name, asked in self._prepared.items():
            own = [site for site in sites if site in asked.signatures]
            self._attack(name, own, "unmask", {"message": to_bytes(asked)})

    def _attack(
        self, name: str, sites: Sequence[str], endpoint: str, payload: Mapping[str, object]
    ) -> None:
        for site, answer in self._call(sites, endpoint, payload).items():
            line = {"attack": name, "site": site, "endpoint": endpoint, "said": answer.failure}
            self._write(line)

    def _call(
        self, sites: Sequence[str], endpoint: str, payload: Mapping[str, object]
    ) -> dict[str, Answer]:
        limits = dict.fromkeys(sites, ATTACK_SECONDS)
        came = self._honest(sites, Endpoint(endpoint), payload, limits)
        answers = {answer.site: answer for answer in came}
        for answer in answers.values():
            self._keep(endpoint, payload, answer)
        return answers

    def _maybe_die(self, endpoint: str, about: Question | None) -> None:
        """Die when the first site has told its seed."""
        note = self._folder / "server-died"
        dies = self._run == LIAR.DEATHS and endpoint == "unmask" and not note.exists()
        if dies and _is_round(about, LIAR.SERVER_DIES_IN):
            note.touch()
            own = psutil.Process()
            for process in (*own.parents()[:1], own):
                os.kill(process.pid, signal.SIGKILL)

    def _keep(self, endpoint: str, payload: Mapping[str, object], answer: Answer) -> None:
        """Keep what was asked and what came."""
        asked = {
            name: b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in payload.items()
        }
        message = answer.message if isinstance(answer.message, bytes) else None
        line = {
            "site": answer.site,
            "endpoint": endpoint,
            "asked": asked,
            "got": None if message is None else b64encode(message).decode(),
            "said": answer.failure,
        }
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        with (self._folder / f"{self._run}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _context(endpoint: str, payload: Mapping[str, object]) -> Question | None:
    if endpoint == "unmask":
        return from_bytes(payload["message"], UnmaskAsk, "it").question
    return from_bytes(payload["secure"], Ask, "it").question if "secure" in payload else None


def _other_groups(payload: Mapping[str, object]) -> dict[str, object]:
    """The same encoding with the numbers of its groups the other way round."""
    encoding = json.loads(_bytes(payload["encoding"]))
    encoding["groups"].reverse()
    return {**payload, "encoding": _json(encoding)}


def _signatures(answers: Mapping[str, Answer]) -> dict[str, bytes]:
    return {site: _bytes(own.message)[-SIGNATURE_BYTES:] for site, own in answers.items()}


def _is_round(about: Question | None, number: int) -> bool:
    return about is not None and (about.endpoint, about.round) == ("answer", number)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _json(content: object) -> bytes:
    return json.dumps(content).encode()
