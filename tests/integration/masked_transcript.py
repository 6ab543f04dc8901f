"""What a server got from its sites in a masked run, and what it would have got without masks.

Two tests of bytes, both Pearson's chi-square over 256 cells. Independent uniform bytes have a mean
of 255 and a standard deviation of 22.6: above 500 with a probability below 1e-17, which is the rate
of false alarms.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load

from fedminmax.network.secure.fixed_point import EXACT_BYTES, pack
from fedminmax.network.secure.layouts import (
    Layouts,
    sizes_from_bytes,
    summary_layout,
)
from fedminmax.network.secure.masks import exact_to_bytes
from fedminmax.network.secure.messages import (
    DIGEST_BYTES,
    SEALED_BYTES,
    SHARE_DIGEST_BYTES,
    SIGNATURE_BYTES,
    Ask,
    from_bytes,
)
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.messages import (
    order_from_bytes,
    sums_from_bytes,
)
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from fedminmax.network.wire.sections import (
    Sections,
    sections_of_summary,
    sections_of_sums,
    summary_from_bytes,
)

BOUND = 500.0
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Exchange:
    """One call: who was asked what, and the answer; None if it was refused or got lost."""

    site: str
    endpoint: str
    asked: dict[str, Any]
    got: bytes | None
    said: str | None

    @property
    def ask(self) -> Ask:
        """How the answer was to be masked."""
        return from_bytes(self.asked["secure"], Ask, "it")

    @property
    def is_masked(self) -> bool:
        """Whether the answer is an upload."""
        return "secure" in self.asked and self.got is not None

    @property
    def numbers(self) -> bytes:
        """The part of an upload that has the numbers under masks."""
        per_site = SHARE_DIGEST_BYTES + SEALED_BYTES
        others = len(self.ask.sites) - 1
        return (self.got or b"")[: -DIGEST_BYTES - per_site * others - SIGNATURE_BYTES]


def read_transcript(path: Path) -> tuple[list[Exchange], list[dict[str, Any]]]:
    """Return the calls of a run and, separately, what came of its attacks."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    attacks = [line for line in lines if "attack" in line]
    calls = [
        Exchange(
            line["site"],
            line["endpoint"],
            {
                name: b64decode(value) if isinstance(value, str) else value
                for name, value in line["asked"].items()
            },
            None if line["got"] is None else b64decode(line["got"]),
            line["said"],
        )
        for line in lines
        if "attack" not in line
    ]
    return calls, attacks


def unmasked_numbers(
    calls: list[Exchange], site: str, plan: NetworkPlan, table: Path, kept: Path
) -> Iterator[tuple[bytes, int]]:
    """What this site's uploads would have been without masks: its true answers, encoded alike.

    With each comes how many of its bytes are words.

    An honest site with the same table answers the very orders of the transcript.
    """
    own = Site(site, SiteSettings(table), kept, plan.sites)
    summary = summary_from_bytes(own.prepare(plan_to_bytes(plan)), plan.schema, site)
    counts, layouts, layout = b"", None, summary_layout(plan.schema)
    for call in (call for call in calls if call.site == site):
        values: Sections
        if call.endpoint == "encode":
            counts = own.encode(call.asked["encoding"])
            sizes = sizes_from_bytes(call.asked["sizes"], "it")
            layouts = Layouts(plan, own._ready("it")[1].encoding, sizes)
        if not call.is_masked:
            continue
        if call.endpoint == "summarise":
            values = sections_of_summary(summary, plan.schema)
        elif layouts is None:
            raise AssertionError(call.endpoint)
        elif call.endpoint == "count_rows":
            layout = layouts.counts()
            values = {"counts": load(counts)["counts"]}
        elif call.endpoint == "answer":
            _, encoded = own._ready("it")
            reply, _ = sums_from_bytes(
                own.answer(call.asked["run"], call.asked["order"]),
                encoded.start,
                groups=encoded.data.groups,
                limit=2**24,
                sender=site,
            )
            values = sections_of_sums(reply)
            order = order_from_bytes(call.asked["order"], encoded.start, "it")
            layout = layouts.round(own._methods[call.asked["run"]], order)
        else:
            values = load(own.measure(call.asked["models"]))
            del values["seconds"]
            layout = layouts.measure(len(plan.runs))
            values = {section.name: values[section.name] for section in layout.sections}
        packed = pack(layout, values, len(call.ask.sites))
        words = packed.words_to_bytes()
        yield words + exact_to_bytes(packed.exact), len(words)


def histogram(content: bytes) -> NDArray[np.int64]:
    """How often each byte occurs."""
    return np.bincount(np.frombuffer(content, dtype=np.uint8), minlength=256)


def chi_square(content: bytes) -> float:
    """How far bytes are from uniform."""
    counts = histogram(content)
    expected = len(content) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def chi_square_of_two(one: bytes, two: bytes) -> float:
    """How far two samples of the same size are from having one distribution, whichever it is."""
    first, second = histogram(one), histogram(two)
    both = first + second
    return float(((first - second)[both > 0] ** 2 / both[both > 0]).sum())


def windows(content: bytes, size: int) -> set[bytes]:
    """All pieces of this size, wherever they begin."""
    return {content[start : start + size] for start in range(len(content) - size + 1)}


def pieces(numbers: bytes, words: int) -> set[bytes]:
    """An upload's words, and parts of its exact numbers, without those that say nothing."""
    found = {numbers[place : place + 8] for place in range(0, words, 8)}
    for start in range(words, len(numbers), EXACT_BYTES):
        exact = numbers[start : start + EXACT_BYTES]
        found |= {exact[place : place + 8] for place in range(0, EXACT_BYTES, 8)}
    return {piece for piece in found if len(set(piece)) > 1}
