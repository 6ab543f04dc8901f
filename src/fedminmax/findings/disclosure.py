"""What a run discloses, and to whom: counts of records, secure aggregation, the privacy guarantee.

No count of records from 1 to 9 is passed on, and none that a total would tell.

All small counts are hidden, and with them the largest one (secondary suppression: Hundepool et al.,
Statistical disclosure control, 2012, chapter 4). Their sum is told, so totals stay exact. Nobody
can tell a small count from that: exchanging it with the largest one, or with a small one, hides the
same places and leaves the same sum. If all that are hidden are equal, moving one record from one to
another does. Rates tell nothing more: 47 of 60 is 0.783, and of 54 to 62 records no other number
has that share. So rates of a group whose count is hidden have fewer digits, as many as every number
of records near its own can have; the largest group needs to lose fewest. Counts by site and group
at once are not passed on at all.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedminmax.core.noise import Unit
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted, listed
from fedminmax.findings.records import RISK, Measured, PrivacyOfRun, Results
from fedminmax.findings.text import NOTHING, capitalised, decimals_of, estimate
from fedminmax.metrics.intervals import MIN_ROWS

LEAST = 10
# Decimals that nobody shows: no limit.
MANY = 9
FEWER = f"fewer than {LEAST}"
WITHOUT_AGGREGATION = "the server sees every reply of every site separately"
NOT_COVERED = (
    "Not covered by it: test results and counts of records in this folder; the means and standard "
    "deviations by which columns are encoded; the names of groups and categories; what was chosen "
    "after looking at the data."
)
NOT_COVERED_AT_SITES = (
    "Not covered by it: test results; the number of training records over all sites, and the sums "
    "by which number columns are encoded; which groups and categories occur, and at how many "
    "sites; what was chosen after looking at the data, and which sites took part when."
)
NO_GUARANTEE = (
    "There is no formal bound (differential privacy) on what the model reveals of a record."
)


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

    @property
    def total_cell(self) -> str:
        """The sum of all as text."""
        return FEWER if self.total is None else f"{self.total:,}"

    def note(self, names: Sequence[str], what: str) -> str:
        """Say what is known of the counts that are not shown; "" if all are.

        >>> publishable([500, 30, 4]).note(["a", "b", "c"], "test record")
        'a and c: 504 test records together, because a count below 10 is not shown.'
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
    Counts(shown=(None, 30, None), together=504, total=534)
    >>> publishable([500, 30, 0])
    Counts(shown=(500, 30, 0), together=None, total=530)
    """
    largest = max(counts, default=0)
    hides = any(map(is_small, counts))
    hidden = [hides and count in (*range(1, LEAST), largest) and count > 0 for count in counts]
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
    return not any(map(is_small, own)) and decimals_told(test, metric, place) > 0


def decimals_told(test: Measured, metric: str, place: int) -> int:
    """Return the most decimals that a group's value and its interval may have; 0 is none at all.

    They are limited if its count is hidden, and for a rate of a class if that class's is. Errors of
    numbers are no shares of a count.
    """
    if "accuracy" not in test.metrics or metric not in test.metrics:
        return MANY
    lists = [[level.rows for level in test.metrics[name].by_group] for name in (metric, "accuracy")]
    if metric in OF_CLASS and test.positives:
        records = zip(lists[1], test.positives, strict=True)
        lists += [list(test.positives), [rows - own for rows, own in records]]
    if not any(place in publishable(counts).hidden for counts in lists):
        return MANY
    return decimals_of_count(lists[0][place])


def decimals_of_count(rows: int) -> int:
    """Return how many decimals every number of records near this one has a share for.

    >>> [decimals_of_count(rows) for rows in (10, 60, 500, 5000)]
    [0, 1, 2, 3]
    """
    return min(3, int(math.log10(max(1, rows - LEAST + 1))))


def is_small(count: int) -> bool:
    """Whether a count is not shown."""
    return 0 < count < LEAST


def small_groups_text(groups: tuple[str, ...], test: Measured) -> str:
    """List the groups with too few records to compare; "" if there are none."""
    rows = [level.rows for level in next(iter(test.metrics.values())).by_group]
    counts, places = publishable(rows), {name: place for place, name in enumerate(groups)}
    small = test.small_groups(groups)
    few = [
        name if counts.shown[places[name]] is None else f"{name} ({counts.cells[places[name]]})"
        for name, own in small.items()
        if own < MIN_ROWS
    ]
    untrained = [name for name, own in small.items() if own >= MIN_ROWS]
    sentences = []
    if few:
        sentences.append(f"Too few test records to say, under {MIN_ROWS}: {', '.join(few)}.")
    if untrained:
        sentences.append(f"Too few training records to be trained for: {', '.join(untrained)}.")
    if counts.hidden:
        sentences.append(counts.note(groups, "test record"))
    return " ".join(sentences)


def merged_groups_text(results: Results) -> str:
    """List the groups that were merged into one, with the risk of each; "" if none were."""
    merged = results.merged
    if merged is None:
        return ""
    listing = ", ".join(merged.groups)
    if merged.test.rows:
        decimals = decimals_of(results, RISK, merged.test)
        levels = merged.test.metrics[RISK].by_group
        counts = publishable([level.rows for level in levels])
        listing = "; ".join(
            name
            if few is None
            else f"{name} {estimate(risk, decimals)}, {counted(few, 'test record')}"
            if few
            else f"{name}, no test records"
            for name, risk, few in zip(merged.groups, levels, counts.shown, strict=True)
        )
        listing += f" ({counts.note(merged.groups, 'test record')[:-1]})" if counts.hidden else ""
    return (
        f"'{MERGED_NAME}' are {len(merged.groups)} groups, each too small to be trained for: "
        f"{listing}."
    )


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


def with_aggregation(threshold: int) -> str:
    """Say what the server learns under secure aggregation."""
    return f"the server learns only totals over at least {threshold} sites"


def what_the_server_sees(results: Results, reveals: str) -> str:
    """Say what the server saw of the sites; ``reveals`` is what the method would show it."""
    if results.sites is None:
        return (
            f"What a server would see of each site: {reveals}, and sums and counts for the "
            "encoding. In this run one process read all files."
        )
    stayed = f"The records stayed at {counted(len(results.sites), 'site')}."
    if results.secure_aggregation is None:
        return (
            f"{stayed} The server saw each site's individual replies, and sums and counts for the "
            "encoding and the test results."
        )
    return (
        f"{stayed} Secure aggregation: {with_aggregation(results.secure_aggregation)}, for the "
        "encoding, the rounds and the test results."
    )


def guarantee_words(privacy: Privacy | PrivacyOfRun) -> str:
    """Say what is guaranteed of whom."""
    unit = privacy.unit.value if isinstance(privacy.unit, Unit) else privacy.unit
    hidden = "one training record" if unit == Unit.ROW.value else "all that one site has"
    colluding = (
        f", even if {counted(privacy.colluding, 'site discloses', 'sites disclose')} noise or "
        f"{'is' if privacy.colluding == 1 else 'are'} missing"
        if privacy.colluding
        else ""
    )
    return (
        f"differential privacy: (epsilon, delta) = ({privacy.epsilon:g}, {privacy.delta:g}) for "
        f"{hidden}, added or removed{colluding}"
    )


def guarantee_lines(privacy: PrivacyOfRun, *, between_sites: bool) -> tuple[str, str, str]:
    """Say what a run guarantees, what that does not cover, and what became of small groups."""
    spent = ""
    if privacy.spent is not None:
        spent = f" All runs on these files have spent epsilon {privacy.spent:.3g}."
    guaranteed = (
        f"{capitalised(guarantee_words(privacy))}; {counted(privacy.releases, 'release')} with "
        f"noise multiplier {privacy.noise_multiplier:.3g}, clip {privacy.clip:g}, losses up to "
        f"{privacy.max_loss:.3g}.{spent}"
    )
    small = (
        f"Groups of fewer than {privacy.minimum_group:,} records are weighted by size: noise would "
        "dominate their sums."
    )
    return guaranteed, NOT_COVERED_AT_SITES if between_sites else NOT_COVERED, small


def privacy_lines(results: Results) -> tuple[str, ...]:
    """Say what is guaranteed and what is not; nothing without a guarantee."""
    if results.privacy is None:
        return ()
    return guarantee_lines(results.privacy, between_sites=results.sites is not None)
