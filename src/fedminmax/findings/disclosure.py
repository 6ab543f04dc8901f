"""Which counts of records may be passed on: none from 1 to 9, and none that a total would tell.

All small counts are hidden, and with them the smallest other one (secondary suppression: Hundepool
et al., Statistical disclosure control, 2012, chapter 4). Their sum is told, so totals stay exact.
Nobody can tell a small count from that: exchanging it with the smallest other one, or with a small
one, hides the same places and leaves the same sum. If all that are hidden are equal, moving one
record from one to another does. Counts by site and group at once are not passed on at all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedminmax.core.text import counted, listed
from fedminmax.findings.records import Measured, Results
from fedminmax.findings.text import NOTHING

LEAST = 10
FEWER = f"fewer than {LEAST}"


@dataclass(frozen=True)
class Counts:
    """Counts as they may be passed on, in their order; None is one that is not shown by itself.

    ``together`` is the sum of those that are not shown, ``total`` that of all; None if it is small.
    """

    shown: tuple[int | None, ...]
    together: int | None
    total: int | None

    @property
    def hidden(self) -> tuple[int, ...]:
        """The places of the counts that are not shown by themselves."""
        return tuple(place for place, count in enumerate(self.shown) if count is None)

    @property
    def cells(self) -> tuple[str, ...]:
        """The counts as text."""
        return tuple(NOTHING if count is None else f"{count:,}" for count in self.shown)

    def note(self, names: Sequence[str], what: str) -> str:
        """Say what is known of the counts that are not shown; "" if all are.

        >>> publishable([500, 30, 4]).note(["a", "b", "c"], "test record")
        'b and c: 34 test records together, because a count below 10 is not shown.'
        """
        if not self.hidden:
            return ""
        whose = listed([names[place] for place in self.hidden])
        sum_of = f"{FEWER} {what}s" if self.together is None else counted(self.together, what)
        together = " together" if len(self.hidden) > 1 else ""
        return f"{whose}: {sum_of}{together}, because a count below {LEAST} is not shown."


def publishable(counts: Sequence[int]) -> Counts:
    """Return counts without those from 1 to 9, and without what would tell them.

    >>> publishable([500, 30, 4])
    Counts(shown=(500, None, None), together=34, total=534)
    >>> publishable([500, 30, 0])
    Counts(shown=(500, 30, 0), together=None, total=530)
    """
    smallest = min((count for count in counts if count >= LEAST), default=0)
    hides = any(map(is_small, counts))
    hidden = [hides and count in (*range(1, LEAST), smallest) and count > 0 for count in counts]
    together = sum(count for count, own in zip(counts, hidden, strict=True) if own)
    total = sum(counts)
    return Counts(
        tuple(None if own else count for count, own in zip(counts, hidden, strict=True)),
        together if together >= LEAST else None,
        None if is_small(total) else total,
    )


# What is about records of a class, and tells how many these are: 3 of 49 is 0.0612, and no other.
OF_CLASS = frozenset(
    {"selection_rate", "false_positive_rate", "false_negative_rate", "calibration", "auroc"}
)


def is_told(test: Measured, metric: str, place: int) -> bool:
    """Whether a group's value may be passed on: neither it nor one of its classes is small."""
    rows = test.metrics[metric].by_group[place].rows
    own = [rows]
    if metric in OF_CLASS and test.positives:
        own += [test.positives[place], rows - test.positives[place]]
    return not any(map(is_small, own))


def is_small(count: int) -> bool:
    """Whether a count is not shown."""
    return 0 < count < LEAST


# What tells of single records: how many there are, a file in a folder, an address.
TELLING = re.compile(
    r"\d (?:\w+ )?(?:rows?|records?|people)\b|\brow \d|\d of \d|[/\\]\w|@", re.IGNORECASE
)
WITHHELD = "left out here because of counts of records; see results.json"


def remarks(results: Results) -> list[str]:
    """Return the warnings and notes of training that tell nothing of single records."""
    texts = dict.fromkeys((*results.warnings, *results.notes))
    told = [text for text in texts if not TELLING.search(text)]
    left = len(texts) - len(told)
    if results.small_groups:
        told.append(
            f"Too few training records to be trained for: {', '.join(results.small_groups)}."
        )
    return [*told, f"{counted(left, 'further remark')}, {WITHHELD}."] if left else told
