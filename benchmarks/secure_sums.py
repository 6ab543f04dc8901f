"""What masked sums cost: at one site, at the server, and in bytes; without a network.

Run: python -m benchmarks.secure_aggregation --sites 3 10

Sites with real kits and records in one process, a logistic model of 100 numbers and one of 750,000
(3 MB in float32). Each line has medians over the rounds: the processor's seconds that one site
takes to mask and to unmask, those of the server for all sites together, the seconds of
a round in which one site works after the other and notes it on the disk, the bytes of an upload as
a multiple of the same numbers in float32, and the largest error relative to the largest number.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.network.flare.kits import provision
from fedminmax.network.secure.fixed_point import Kind, Layout, Section, exponent_for, pack
from fedminmax.network.secure.messages import Agreed, Ask, from_bytes, question_digest
from fedminmax.network.secure.secure_site import SecureSite
from fedminmax.network.secure.session import Terms, read_authority, read_identity
from fedminmax.network.secure.totals import MaskedTotals, open_session
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import Limits
from fedminmax.network.site.site import read_call
from fedminmax.network.wire.endpoints import Endpoint, Question
from fedminmax.network.wire.plan import threshold_for
from fedminmax.network.wire.transport import NO_LIMITS, Answer

LENGTHS = {"logistic": 100, "3 MB": 750_000}
ROUNDS = 15
BYTES_PER_NUMBER = 4
AGREED = Agreed(b"the same for all sites")


class TimedSites:
    """Calls the sites in this process, and notes how long each call took."""

    def __init__(self, folder: Path, names: Sequence[str], length: int) -> None:
        kits = provision(folder / "kits", host="localhost", port=8002, sites=names).sites
        self.terms = Terms("bench", "0", tuple(names), threshold_for(len(names)))
        authority = read_authority(kits[names[0]] / "startup" / "rootCA.pem")
        self._sites = {}
        self.values: dict[str, NDArray[np.float64]] = {}
        for place, name in enumerate(names):
            startup = kits[name] / "startup"
            identity = read_identity(name, startup / "client.key", startup / "client.crt")
            self._sites[name] = SecureSite(
                identity, authority, self.terms, self._journal(folder / name)
            )
            self.values[name] = np.random.default_rng(place).normal(size=length)
        self.question = Question(Endpoint.ANSWER)
        self.layout = Layout(())
        self.seconds: dict[str, list[float]] = {}

    def _journal(self, folder: Path) -> Journal:
        journal = Journal(folder)
        journal.begin("bench", "0", "0", Limits(1, 1, 10**6, threshold=self.terms.threshold))
        return journal

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - nobody takes long here
    ) -> Iterator[Answer]:
        """Ask one site after the other."""
        for site in sites:
            started = time.process_time()
            own = self._sites[site]
            if endpoint == "answer":
                ask = from_bytes(payload["secure"], Ask, "the server")
                values = {"step": torch.from_numpy(self.values[site])}
                pack_step = partial(pack, self.layout, values)
                message = own.mask(
                    ask, self.question, pack_step, question_digest(AGREED, self.layout)
                )
            else:
                message = getattr(own, endpoint)(**read_call(endpoint, payload).arguments)
            self.seconds.setdefault(endpoint, []).append(time.process_time() - started)
            yield Answer(site, message)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every model with every number of sites."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10])
    options = parser.parse_args(arguments)
    print("sites model      mask s  unmask s  server s  round s  bytes x  relative error")
    for sites in options.sites:
        for model, length in LENGTHS.items():
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), sites, model, length)


def measure(folder: Path, sites: int, model: str, length: int) -> None:
    """Mask some rounds and print their line."""
    names = [f"site-{number}" for number in range(1, sites + 1)]
    timed = TimedSites(folder, names, length)
    roster, _ = open_session(timed, timed.terms)
    totals = MaskedTotals(timed, roster)
    plain = np.sum(list(timed.values.values()), axis=0)
    largest = max(float(np.abs(own).max()) for own in timed.values.values())
    layout = Layout((Section("step", length, Kind.FIXED, exponent_for(largest, sites)),))
    timed.layout = layout
    timed.seconds.clear()
    server, rounds, errors, upload_bytes = [], [], [], 0
    for number in range(ROUNDS):
        timed.question = Question(Endpoint.ANSWER, round=number)
        before = sum(map(sum, timed.seconds.values()))
        started, clock = time.process_time(), time.perf_counter()
        total = totals.total(timed.question, {}, AGREED, layout=layout, sites=names)
        at_sites = sum(map(sum, timed.seconds.values())) - before
        server.append(time.process_time() - started - at_sites)
        rounds.append(time.perf_counter() - clock)
        errors.append(float(np.abs(total.values["step"] - plain).max()) / largest)
        upload_bytes = total.bytes_in
    mask, unmask = (statistics.median(timed.seconds[name]) for name in ("answer", "unmask"))
    print(
        f"{sites:5d} {model:9s} {mask:7.4f} {unmask:9.4f} "
        f"{statistics.median(server):9.4f} {statistics.median(rounds):8.4f} "
        f"{upload_bytes / (BYTES_PER_NUMBER * length):8.2f} {max(errors):15.1e}"
    )


if __name__ == "__main__":
    main()
