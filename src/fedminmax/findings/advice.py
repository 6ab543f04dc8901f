"""The advice as plain text, for readers who do not know what a convex hull is."""

from collections.abc import Iterator

from fedminmax.advice import counts
from fedminmax.core.text import percent
from fedminmax.findings.tables import Table
from fedminmax.findings.text import NOTHING, named, size_text
from fedminmax.methods.card import Over
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS

QUESTION = "Does protecting the worst site protect the worst group?"
ANY_PARTITION = "Group-level methods return the same model no matter which site has which records."
NOTHING_STANDS_OUT = (
    "Nothing stands out: every group has enough records, and more than one site has some of them."
)
ONLY_MIXES = (
    "A site-level method can only give groups weights that are means of the sites' own mixes"
)


def answer(advice: counts.Advice) -> str:
    """Say whether protecting the worst site protects the worst group here."""
    if advice.reach is counts.Reach.EVERY_MIX:
        return (
            "Yes: every group has a site with records of that group only. A model that is as good "
            "as possible for the worst site is also as good as possible for the worst group, if "
            "the people of each group are alike at all its sites."
        )
    if advice.reach is counts.Reach.ONE_MIX:
        who = "there is one site" if len(advice.sites) == 1 else "all sites have the same mix"
        return (
            f"No: {who}. Weights over sites cannot favour any group here. Protecting the worst "
            "site means minimising the mean over all records."
        )
    return f"Not in general. {_some_mixes(advice)}"


def _some_mixes(advice: counts.Advice) -> str:
    if advice.spread <= counts.NEARLY_ALIKE:
        return (
            f"{ONLY_MIXES}. All sites have nearly the same mix, so hardly any group can be "
            "favoured."
        )
    out = [group for group in advice.groups if group.rows and not group.has_own_site]
    if out:
        return (
            f"{ONLY_MIXES}. No site's records are mostly of {_named(out)}. A model that needs more "
            "weight on such a group than its share at any site is out of reach."
        )
    return (
        f"{ONLY_MIXES}. Each group has a site with mostly its records, but not every group has one "
        "with only its records. A model that needs nearly all the weight on such a group is out of "
        "reach."
    )


def remedies(advice: counts.Advice) -> list[str]:
    """Say what would help, the most important first."""
    return [
        *_for_missing_groups(advice),
        *_for_the_method(advice),
        *_for_small_groups(advice),
        *_for_few_test_records(advice),
        *_for_single_sites(advice),
        *_for_costs(advice),
    ]


def _for_missing_groups(advice: counts.Advice) -> Iterator[str]:
    missing = [group for group in advice.groups if not group.rows]
    if missing:
        yield (
            f"No site has a training record of {_named(missing)}: no method can protect them. Find "
            "a site that has some, or remove them from the groups."
        )


def _for_the_method(advice: counts.Advice) -> Iterator[str]:
    card = CARDS.get(advice.chosen or "")
    if card is None or advice.equivalent:
        return
    if card.over is Over.SITES:
        yield (
            f"{card.key} protects the worst site: choose fedminmax or another group-level method, "
            f"or find sites whose records are mostly of {_named(_out_of_reach(advice))}."
        )
    elif card.over is Over.ROWS:
        yield (
            f"{card.key} minimises the mean over all records: for the worst group choose fedminmax."
        )


def _for_small_groups(advice: counts.Advice) -> Iterator[str]:
    for group in advice.groups:
        if group.is_small:
            enough = counts.rows_for(counts.SMALL_ERROR, advice.loss)
            yield (
                f"“{group.name}” has fewer than {advice.minimum_group:,} training records: a few "
                f"decide its risk. Add more ({enough:,} in total would reduce its standard error "
                f"to {error_text(counts.SMALL_ERROR, advice)}), or merge it with a similar group."
            )


def _for_few_test_records(advice: counts.Advice) -> Iterator[str]:
    few = [group for group in advice.groups if group.has_few_test_rows and group.rows]
    if few:
        yield (
            f"Fewer than {MIN_ROWS} test records of {_named(few)}: the results will not say "
            "whether they are worst off. Hold out a larger share (held_out), or provide test files."
        )


def _for_single_sites(advice: counts.Advice) -> Iterator[str]:
    alone = [group for group in advice.groups if group.sites == 1]
    if alone and len(advice.sites) > 1:
        yield (
            f"Only one site has {_named(alone)}: sums over such a group are that site's alone, and "
            "without that site a run learns nothing about the group. A second site would solve "
            "both."
        )


def _for_costs(advice: counts.Advice) -> Iterator[str]:
    for cost in advice.costs:
        if cost.refusal:
            yield f"{cost.method} cannot train this model: {cost.refusal}."
    chosen = next((cost for cost in advice.costs if cost.method == advice.chosen), None)
    if chosen is None or chosen.rounds is None or chosen.max_rounds is None:
        return
    if chosen.max_rounds < chosen.rounds.low:
        yield (
            f"{chosen.method} usually needs {rounds_text(chosen)} rounds, and the configuration "
            f"has {chosen.max_rounds:,}: set more (rounds in [method]), or choose a method that "
            "needs fewer."
        )


def groups_table(advice: counts.Advice) -> Table:
    """Return a table with a line for every group, and what its columns mean."""
    unit = (
        "relative to it, if errors are normally distributed."
        if advice.relative_errors
        else "at most, on a scale from 0 to 2."
    )
    explained = (
        "Most at one site: the group's largest share of any site's records; a site-level method "
        "cannot give it more weight. Distance: from all weight on this group to the nearest group "
        "weights that weights over sites can produce, 0 to 1.414. Error: the standard error of its "
        f"risk, {unit}"
    )
    return Table(
        explained,
        (
            "group",
            "records",
            "of all",
            "sites",
            "most at one site",
            "distance",
            "error",
            "test records",
        ),
        tuple(_group_cells(group, advice) for group in advice.groups),
    )


def _group_cells(group: counts.GroupAdvice, advice: counts.Advice) -> tuple[str, ...]:
    at = f" ({group.largest_site})" if group.largest_site else ""
    error = group.standard_error
    return (
        group.name,
        f"{group.rows:,}",
        percent(group.share),
        f"{group.sites:,}",
        f"{percent(group.largest_share)}{at}",
        f"{group.distance:.3f}",
        NOTHING if error is None else error_text(error, advice),
        NOTHING if group.test_rows is None else f"{group.test_rows:,}",
    )


def costs_table(advice: counts.Advice) -> Table:
    """Return a table with a line for every method's run, and what its columns mean."""
    return Table(
        "Needed: how many rounds a run usually needs, an estimate. Configured: the rounds in the "
        "configuration. Down, up: what a site receives and sends in a round, exact. Total up: what "
        "it sends in the needed rounds if the method stops by itself, else in the configured ones.",
        ("method", "needed", "configured", "down", "up", "total up"),
        tuple(map(_cost_cells, advice.costs)),
    )


def _cost_cells(cost: counts.RunCost) -> tuple[str, ...]:
    configured = NOTHING if cost.max_rounds is None else f"{cost.max_rounds:,}"
    start = (cost.method, rounds_text(cost), configured)
    if cost.messages is None:
        return (*start, NOTHING, NOTHING, NOTHING)
    total = cost.bytes_up
    return (
        *start,
        size_text(cost.messages.down),
        size_text(cost.messages.up),
        NOTHING if total is None else _range(*map(size_text, total)),
    )


def reveals_table(advice: counts.Advice) -> Table:
    """Return which methods reveal what about a site."""
    return Table(
        "What a site reveals to the server, by method",
        ("a site reveals", "methods"),
        tuple((shown, ", ".join(keys)) for shown, keys in advice.reveals.items()),
    )


def rounds_text(cost: counts.RunCost) -> str:
    """Format how many rounds a run usually needs, if known."""
    if cost.rounds is None:
        return "unknown"
    return _range(f"{cost.rounds.low:,}", f"{cost.rounds.high:,}")


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def error_text(error: float, advice: counts.Advice) -> str:
    """Format a standard error."""
    return percent(error) if advice.relative_errors else f"{error:.2g}"


def _out_of_reach(advice: counts.Advice) -> list[counts.GroupAdvice]:
    present = [group for group in advice.groups if group.rows]
    return [group for group in present if not group.has_own_site] or [
        group for group in present if not group.is_reached
    ]


def _named(groups: list[counts.GroupAdvice]) -> str:
    return named([group.name for group in groups])
