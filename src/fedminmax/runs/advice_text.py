"""The advice as plain text, for readers who do not know what a convex hull is."""

from collections.abc import Iterator, Sequence

from fedminmax.advice.counts import (
    NEARLY_ALIKE,
    SAME,
    SMALL_ERROR,
    Advice,
    GroupAdvice,
    Reach,
    RunCost,
    rows_for,
)
from fedminmax.core.text import counted, listed
from fedminmax.findings.records import Results
from fedminmax.methods.card import Over
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS

MAX_NAMED = 6
ANY_PARTITION = "Methods over groups give the same answer no matter which site has which rows"
UNITS = ("bytes", "kB", "MB", "GB", "TB")
# Weights that are this close to a reachable mix lead to nearly the same model.
NEAR = 0.01
MAX_GROUPS_NAMED = 4


def answer(advice: Advice) -> str:
    """Say whether protecting the worst site protects the worst group here."""
    if advice.reach is Reach.EVERY_MIX:
        return (
            "Yes: every group has a site with rows of that group only. A model that is as good "
            "as possible for the worst site is also as good as possible for the worst group, as "
            "far as the people of a group are alike at all its sites."
        )
    if advice.reach is Reach.ONE_MIX:
        who = "there is one site" if len(advice.sites) == 1 else "all sites have the same mix"
        return (
            f"No: {who}. Weights over sites cannot favour any group here: protecting the worst "
            "site means minimising the mean over all rows."
        )
    return f"Not in general. {_some_mixes(advice)}"


def _some_mixes(advice: Advice) -> str:
    reason = "The only group weights that a method over sites can use are means of the sites' mixes"
    if advice.spread <= NEARLY_ALIKE:
        return (
            f"{reason}; and all sites have nearly the same mix, so hardly any group can be "
            "favoured."
        )
    out = [group for group in advice.groups if group.rows and not group.has_own_site]
    if out:
        return (
            f"{reason}. No site's rows are mostly of {_named(out)}; an answer that needs more "
            "weight on such a group than its share at any site is out of reach."
        )
    return (
        f"{reason}. Each group has a site with mostly its rows, but not every group has one "
        "with only its rows: an answer that needs nearly all the weight on such a group is out of "
        "reach."
    )


def remedies(advice: Advice) -> list[str]:
    """Say what would help, the most important first."""
    return [
        *_for_missing_groups(advice),
        *_for_the_method(advice),
        *_for_small_groups(advice),
        *_for_few_test_rows(advice),
        *_for_single_sites(advice),
        *_for_costs(advice),
    ]


def _for_missing_groups(advice: Advice) -> Iterator[str]:
    missing = [group for group in advice.groups if not group.rows]
    if missing:
        yield (
            f"No site has a training row of {_named(missing)}: no method can protect them. Find "
            "a site that has some, or remove them from the groups."
        )


def _for_the_method(advice: Advice) -> Iterator[str]:
    card = CARDS.get(advice.chosen or "")
    if card is None or advice.equivalent:
        return
    if card.over is Over.SITES:
        yield (
            f"{card.key} protects the worst site: choose fedminmax or another method over "
            f"groups, or find sites whose rows are mostly of {_named(_out_of_reach(advice))}."
        )
    elif card.over is Over.ROWS:
        yield f"{card.key} minimises the mean over all rows: for the worst group choose fedminmax."


def _for_small_groups(advice: Advice) -> Iterator[str]:
    for group in (own for own in advice.groups if own.is_small):
        yield (
            f"“{group.name}” has {counted(group.rows, 'training row')}: a few rows decide its "
            f"risk. Add at least {advice.minimum_group - group.rows:,} more "
            f"({rows_for(SMALL_ERROR, advice.loss):,} in total would reduce its standard error to "
            f"{error_text(SMALL_ERROR, advice)}), or merge it with a similar group."
        )


def _for_few_test_rows(advice: Advice) -> Iterator[str]:
    few = [group for group in advice.groups if group.has_few_test_rows and group.rows]
    if few:
        yield (
            f"Fewer than {MIN_ROWS} test rows of {_named(few)}: the results will not say whether "
            "they are worst off. Hold out a larger share (held_out), or provide test files."
        )


def _for_single_sites(advice: Advice) -> Iterator[str]:
    alone = [group for group in advice.groups if group.sites == 1]
    if alone and len(advice.sites) > 1:
        yield (
            f"Only one site has {_named(alone)}: sums over such a group are that site's own, "
            "and without that site a run learns nothing about the group. A second site would "
            "solve both."
        )


def _for_costs(advice: Advice) -> Iterator[str]:
    for cost in advice.costs:
        if cost.refusal:
            yield f"{cost.method} cannot train this model: {cost.refusal}."
    own = next((cost for cost in advice.costs if cost.method == advice.chosen), None)
    if own is None or own.rounds is None or own.max_rounds is None:
        return
    if own.max_rounds < own.rounds.low:
        yield (
            f"{own.method} usually needs {rounds_text(own)} rounds, and the configuration has "
            f"{own.max_rounds:,}: set more (rounds in [method]), or choose a method that needs "
            "fewer."
        )


def group_cells(group: GroupAdvice, advice: Advice) -> list[str]:
    """Return a group's line of the table, with the columns of ``GROUP_HEADERS``."""
    at = f" ({group.largest_site})" if group.largest_site else ""
    error = group.standard_error
    return [
        group.name,
        f"{group.rows:,}",
        percent(group.share),
        f"{group.sites:,}",
        f"{percent(group.largest_share)}{at}",
        f"{group.distance:.3f}",
        "-" if error is None else error_text(error, advice),
        "-" if group.test_rows is None else f"{group.test_rows:,}",
    ]


GROUP_HEADERS = (
    "group",
    "rows",
    "of all",
    "sites",
    "most at one site",
    "distance",
    "error",
    "test rows",
)
GROUP_EXPLAINED = (
    "Most at one site: the group's largest share of any site's rows; a method over sites "
    "cannot give it more weight. Distance: from all weight on this group to the nearest group "
    "weights that weights over sites can produce, 0 to 1.414. Error: the standard error of its "
    "risk, "
)


def explanation(advice: Advice) -> str:
    """Explain the columns of the table."""
    unit = (
        "relative to it, if errors are normally distributed."
        if advice.relative_errors
        else "at most, on a scale from 0 to 2."
    )
    return GROUP_EXPLAINED + unit


COST_EXPLAINED = (
    "Needed: how many rounds a run usually needs, an estimate. Configured: the rounds in the "
    "configuration. Down, up: what a site receives and sends in a round, exact; total up: what "
    "it sends in the needed rounds if the method stops by itself, else in the configured ones."
)
COST_HEADERS = ("method", "needed", "configured", "down", "up", "total up")


def cost_cells(cost: RunCost) -> list[str]:
    """Return a method's line of the table of costs."""
    configured = "-" if cost.max_rounds is None else f"{cost.max_rounds:,}"
    if cost.messages is None:
        return [cost.method, rounds_text(cost), configured, "-", "-", "-"]
    total = cost.bytes_up
    return [
        cost.method,
        rounds_text(cost),
        configured,
        size_text(cost.messages.down),
        size_text(cost.messages.up),
        "-" if total is None else _range(*map(size_text, total)),
    ]


def rounds_text(cost: RunCost) -> str:
    """Format how many rounds a run usually needs, if known."""
    if cost.rounds is None:
        return "unknown"
    return _range(f"{cost.rounds.low:,}", f"{cost.rounds.high:,}")


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def size_text(size: float) -> str:
    """Format a number of bytes.

    >>> size_text(736), size_text(1_234_567)
    ('736 bytes', '1.23 MB')
    """
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"


def error_text(error: float, advice: Advice) -> str:
    """Format a standard error."""
    return percent(error) if advice.relative_errors else f"{error:.2g}"


def percent(share: float) -> str:
    """Format a share, without rounding a little to 0 % or nearly all to 100 %.

    >>> percent(0.25), percent(0.0), percent(0.0004), percent(0.9999)
    ('25 %', '0 %', 'under 0.1 %', 'over 99.9 %')
    """
    if 0.0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1.0:
        return "over 99.9 %"
    return f"{100 * share:.3g} %"


def _out_of_reach(advice: Advice) -> list[GroupAdvice]:
    present = [group for group in advice.groups if group.rows]
    return [group for group in present if not group.has_own_site] or [
        group for group in present if not group.is_reached
    ]


def _named(groups: Sequence[GroupAdvice]) -> str:
    names = [f"“{group.name}”" for group in groups[:MAX_NAMED]]
    if len(groups) > MAX_NAMED:
        names.append(f"{len(groups) - MAX_NAMED:,} more")
    return listed(names)


def after_training(results: Results) -> list[str]:
    """Describe what is known after the run."""
    return [*_reach_paragraphs(results), *_cost_paragraphs(results)]


def _reach_paragraphs(results: Results) -> list[str]:
    reach = results.reach
    if reach is None:
        return []
    heaviest = sorted(zip(reach.weights, results.groups, strict=True), reverse=True)[
        :MAX_GROUPS_NAMED
    ]
    shown = listed([f"{percent(weight)} on “{name}”" for weight, name in heaviest if weight])
    final = f"the groups' final weights ({shown})"
    if reach.distance <= SAME:
        return [f"A method that is minimax over sites could also have reached {final}."]
    if reach.distance <= NEAR:
        return [f"A method that is minimax over sites could nearly have reached {final}."]
    sentence = (
        f"A method that is minimax over sites could not have reached {final}: the nearest "
        f"weights that it can reach are {reach.distance:.2f} away, on a scale from 0 to 1.41."
    )
    return [sentence]


def _cost_paragraphs(results: Results) -> list[str]:
    cost = results.cost
    if cost is None:
        return []
    rounds = results.method.rounds
    start = f"{results.method.name} took {counted(rounds, 'round')}"
    if cost.usual_rounds is not None:
        low, high = cost.usual_rounds
        start += f"; the estimate was {low:,} to {high:,}"
    total = size_text(rounds * results.method.participation * cost.bytes_up)
    each = f"{size_text(cost.bytes_up)} up and {size_text(cost.bytes_down)} down per round"
    if cost.counted_up is None:
        return [f"{start}. Over a network a site's messages are {each}, {total} up in total."]
    up, down = size_text(cost.counted_up), size_text(cost.counted_down or 0)
    found = f"{up} up and {down} down per round"
    compared = "" if found == each else f"; expected: {each}"
    return [f"{start}. A site's messages were {found}{compared}."]
