"""The advice in words, for people who have never heard of a convex hull."""

from collections.abc import Iterator, Sequence

from fedminmax.core.text import counted, listed
from fedminmax.methods.card import Over
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.runs.advice import (
    NEARLY_ALIKE,
    SAME,
    SMALL_ERROR,
    Advice,
    GroupAdvice,
    Reach,
    RunCost,
    rows_for,
)
from fedminmax.runs.records import Results

MAX_NAMED = 6
ANY_PARTITION = "Methods over groups give the same answer whoever holds which rows"
UNITS = ("bytes", "kB", "MB", "GB", "TB")
# Weights that are nearer to a reachable mix lead to nearly the same model.
NEAR = 0.01
MAX_GROUPS_NAMED = 4


def answer(advice: Advice) -> str:
    """Say whether looking after the worst holder looks after the worst group here."""
    if advice.reach is Reach.EVERY_MIX:
        return (
            "Yes: every group has a holder with rows of that group alone. A model that is as good "
            "as possible for the worst holder is so for the worst group too, as far as the people "
            "of a group are alike at all its holders."
        )
    if advice.reach is Reach.ONE_MIX:
        who = "There is one holder" if len(advice.holders) == 1 else "All holders have one mix"
        return (
            f"No: {who}. Weights over holders cannot favour any group here: looking after the "
            "worst holder is minimising the mean over all rows."
        )
    return f"Not in general. {_some_mixes(advice)}"


def _some_mixes(advice: Advice) -> str:
    words = (
        "A method over holders gives the groups a mean of the holders' mixes as weights, and no "
        "others"
    )
    if advice.spread <= NEARLY_ALIKE:
        return (
            f"{words}; and all holders have nearly the same mix, so that hardly any group can be "
            "favoured."
        )
    out = [group for group in advice.groups if group.rows and not group.has_own_holder]
    if out:
        return (
            f"{words}. No holder's rows are mostly of {_named(out)}; an answer that needs more "
            "weight on such a group than it has at any holder is out of reach."
        )
    return (
        f"{words}. Each group has a holder that is mostly its own, but not every group one "
        "that is entirely so: an answer that needs nearly all the weight on it is out of reach."
    )


def remedies(advice: Advice) -> list[str]:
    """Say what would help, the most pressing first."""
    return [
        *_of_missing(advice),
        *_of_the_method(advice),
        *_of_small(advice),
        *_of_tests(advice),
        *_of_single_holders(advice),
        *_of_costs(advice),
    ]


def _of_missing(advice: Advice) -> Iterator[str]:
    missing = [group for group in advice.groups if not group.rows]
    if missing:
        yield (
            f"No holder has a training row of {_named(missing)}: no method can look after "
            "them. Find a holder that has some, or take them out of the groups."
        )


def _of_the_method(advice: Advice) -> Iterator[str]:
    card = CARDS.get(advice.chosen or "")
    if card is None or advice.equivalent:
        return
    if card.over is Over.HOLDERS:
        yield (
            f"{card.key} looks after holders: choose fedminmax or another method over groups, or "
            f"find holders whose rows are mostly of {_named(_out_of_reach(advice))}."
        )
    elif card.over is Over.ROWS:
        yield f"{card.key} minimises the mean over all rows: for the worst group choose fedminmax."


def _of_small(advice: Advice) -> Iterator[str]:
    for group in (own for own in advice.groups if own.is_small):
        yield (
            f"“{group.name}” has {counted(group.rows, 'training row')}: a few of them decide what "
            f"its risk is. {advice.minimum_group - group.rows:,} more are the least that helps, "
            f"{rows_for(SMALL_ERROR, advice.loss):,} in all would bring its standard error to "
            f"{error_words(SMALL_ERROR, advice)}; or merge it with a group that it resembles."
        )


def _of_tests(advice: Advice) -> Iterator[str]:
    few = [group for group in advice.groups if group.has_few_test_rows and group.rows]
    if few:
        yield (
            f"Fewer than {MIN_ROWS} test rows of {_named(few)}: after training nothing will be "
            "said about who is worst off there. Hold out a larger share (held_out), or bring test "
            "files."
        )


def _of_single_holders(advice: Advice) -> Iterator[str]:
    alone = [group for group in advice.groups if group.holders == 1]
    if alone and len(advice.holders) > 1:
        yield (
            f"One holder alone has {_named(alone)}: sums of such a group are that holder's own, "
            "and without that holder a run learns nothing more about it. A second holder would "
            "help with both."
        )


def _of_costs(advice: Advice) -> Iterator[str]:
    for cost in advice.costs:
        if cost.refusal:
            yield f"{cost.method} cannot train this model: {cost.refusal}."
    own = next((cost for cost in advice.costs if cost.method == advice.chosen), None)
    if own is None or own.rounds is None or own.max_rounds is None:
        return
    if own.max_rounds < own.rounds.low:
        yield (
            f"{own.method} usually needs {rounds_words(own)} rounds, and the configuration asks "
            f"for {own.max_rounds:,}: ask for more (rounds in [method]), or choose a method that "
            "needs fewer."
        )


def group_cells(group: GroupAdvice, advice: Advice) -> list[str]:
    """Return a group's line of the table; ``GROUP_HEADERS`` names its columns."""
    at = f" ({group.largest_holder})" if group.largest_holder else ""
    error = group.standard_error
    return [
        group.name,
        f"{group.rows:,}",
        percent(group.share),
        f"{group.holders:,}",
        f"{percent(group.largest_share)}{at}",
        f"{group.distance:.3f}",
        "-" if error is None else error_words(error, advice),
        "-" if group.test_rows is None else f"{group.test_rows:,}",
    ]


GROUP_HEADERS = (
    "group",
    "rows",
    "of all",
    "holders",
    "most at one holder",
    "distance",
    "error",
    "test rows",
)
GROUP_EXPLAINED = (
    "Most at one holder: the largest share of the group in any holder's rows; a method over "
    "holders cannot give it more weight. Distance: from the weights that look at this group alone "
    "to the nearest that weights over holders make, 0 to 1.414. Error: the standard error of its "
    "risk, "
)


def explanation(advice: Advice) -> str:
    """Explain the columns of the table."""
    unit = (
        "as a share of it, if errors are bell-shaped."
        if advice.relative_errors
        else "at most, on a scale from 0 to 2."
    )
    return GROUP_EXPLAINED + unit


COST_EXPLAINED = (
    "Needed: the rounds that a run usually needs, an estimate. Asked for: those of the "
    "configuration. Down, up: what a holder receives and sends in a round, to the byte; in all: "
    "what it sends in the rounds asked for, else in those needed."
)
COST_HEADERS = ("method", "needed", "asked for", "down", "up", "up in all")


def cost_cells(cost: RunCost) -> list[str]:
    """Return a method's line of the table of costs."""
    asked = "-" if cost.max_rounds is None else f"{cost.max_rounds:,}"
    if cost.messages is None:
        return [cost.method, rounds_words(cost), asked, "-", "-", "-"]
    total = cost.bytes_up
    return [
        cost.method,
        rounds_words(cost),
        asked,
        size_words(cost.messages.down),
        size_words(cost.messages.up),
        "-" if total is None else _range(*map(size_words, total)),
    ]


def rounds_words(cost: RunCost) -> str:
    """Say how many rounds a run usually needs, if that is known."""
    if cost.rounds is None:
        return "not known"
    return _range(f"{cost.rounds.low:,}", f"{cost.rounds.high:,}")


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def size_words(size: float) -> str:
    """Say a number of bytes.

    >>> size_words(736), size_words(1_234_567)
    ('736 bytes', '1.23 MB')
    """
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"


def error_words(error: float, advice: Advice) -> str:
    """Say a standard error."""
    return percent(error) if advice.relative_errors else f"{error:.2g}"


def percent(share: float) -> str:
    """Say a share, without calling a little none or nearly all of it all.

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
    return [group for group in present if not group.has_own_holder] or [
        group for group in present if not group.is_reached
    ]


def _named(groups: Sequence[GroupAdvice]) -> str:
    names = [f"“{group.name}”" for group in groups[:MAX_NAMED]]
    if len(groups) > MAX_NAMED:
        names.append(f"{len(groups) - MAX_NAMED:,} more")
    return listed(names)


def after_words(results: Results) -> list[str]:
    """Say what is known after the run; nothing for runs of earlier versions."""
    return [*_reach_words(results), *_cost_words(results)]


def _reach_words(results: Results) -> list[str]:
    reach = results.reach
    if reach is None:
        return []
    heaviest = sorted(zip(reach.weights, results.groups, strict=True), reverse=True)[
        :MAX_GROUPS_NAMED
    ]
    shown = listed([f"{percent(weight)} on “{name}”" for weight, name in heaviest if weight])
    final = f"the groups' final weights ({shown})"
    if reach.distance <= SAME:
        return [f"A method that is minimax over holders could have reached {final}, too."]
    if reach.distance <= NEAR:
        return [f"A method that is minimax over holders could nearly have reached {final}."]
    words = (
        f"A method that is minimax over holders could not have reached {final}: the nearest that "
        f"holders' mixes make are {reach.distance:.2f} away, on a scale from 0 to 1.41."
    )
    return [words]


def _cost_words(results: Results) -> list[str]:
    cost = results.cost
    if cost is None:
        return []
    rounds = results.method.rounds
    words = f"{results.method.name} took {counted(rounds, 'round')}"
    if cost.usual_rounds is not None:
        low, high = cost.usual_rounds
        words += f"; the estimate of what it needs was {low:,} to {high:,}"
    total = size_words(rounds * results.method.participation * cost.bytes_up)
    each = f"{size_words(cost.bytes_up)} up and {size_words(cost.bytes_down)} down per round"
    if cost.counted_up is None:
        return [f"{words}. Over a network a holder's messages are {each}, {total} up in all."]
    up, down = size_words(cost.counted_up), size_words(cost.counted_down or 0)
    return [
        f"{words}. A site's messages had {up} up and {down} down per round; expected were {each}."
    ]
