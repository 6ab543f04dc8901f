"""The advice as plain text, for readers who do not know what a convex hull is.

Before training it follows from counts of records; of a run, what its results suggest comes first.
"""

from collections.abc import Iterator, Sequence

from fedminmax.advice import counts
from fedminmax.advice.advise import advise_census
from fedminmax.core.convergence import BY_VALIDATION
from fedminmax.core.text import percent
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.records import Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import (
    NOTHING,
    decimals_of,
    estimate,
    named,
    number,
    risk_name,
    size_text,
)
from fedminmax.findings.training import HARDLY, convergence_of
from fedminmax.findings.verdict import worst_of
from fedminmax.methods.card import Over
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.training.round_record import RoundRecord

QUESTION = "Does protecting the worst site protect the worst group?"
ANY_PARTITION = "Group-level methods return the same model no matter which site has which records."
NOTHING_STANDS_OUT = (
    "Nothing stands out: every group has enough records, and more than one site has some of them."
)
ONLY_MIXES = (
    "A site-level method can only give groups weights that are means of the sites' own mixes"
)
# A group with less weight had no influence on the model.
NO_WEIGHT = 0.001
# Losses that are also the risk on test records, so that both can be compared.
SAME_ON_TEST_RECORDS = ("brier", "squared_error")
MAX_SUGGESTIONS = 8
NOTHING_AFTER_TRAINING = (
    "Nothing stands out: training has converged, and every group has enough records and more than "
    "one site."
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


def what_would_help(
    results: Results, rounds: Sequence[RoundRecord], census: CensusFile, least: int
) -> list[str]:
    """Return what the results suggest, then what the counts of records suggest."""
    if results.is_audit:
        return ["Train with these groups in mind (fedminmax train), then audit both models."]
    counted_by = advise_census(census, results.loss, results.method.key, least)
    found = [*_from_results(results, rounds), *remedies(counted_by)]
    if not found:
        return [NOTHING_AFTER_TRAINING]
    left = len(found) - MAX_SUGGESTIONS
    return [*found[:MAX_SUGGESTIONS], *([f"{left:,} more: fedminmax advise"] if left > 0 else [])]


def _from_results(results: Results, rounds: Sequence[RoundRecord]) -> Iterator[str]:
    convergence = results.convergence
    if convergence and not (convergence.converged or convergence.reason == BY_VALIDATION):
        yield f"More rounds: {convergence_of(results)}"
    worst = worst_of(results)
    if worst is None:
        return
    name, measured = worst
    place = results.groups.index(name)
    trained = rounds[-1].risks[place]
    larger = "a larger one" if results.model.hidden else 'kind = "mlp" in [model]'
    other = f"Other features, or another kind of model, such as {larger}"
    comparable = results.loss in SAME_ON_TEST_RECORDS and trained is not None
    if comparable and measured.low is not None and (trained or 0.0) < measured.low:
        decimals = decimals_of(results)
        yield (
            f"More records of “{name}”, which is worst off: on its training records the model's "
            f"{risk_name(results)} is {number(trained, decimals)}, on test records "
            f"{estimate(measured, decimals)}. What it learned from these records does not hold for "
            "others of the group."
        )
    elif comparable:
        yield (
            f"{other}: for “{name}”, which is worst off, the model is no better on its training "
            "records than on test records, so more records of the same kind would hardly help."
        )
    elif results.proof is not None and results.proof.gap <= HARDLY:
        lower = "lower" if results.proof.limit is None else "clearly lower"
        yield (
            f"{other}: no {results.model.kind} model on these features has a {lower} highest risk "
            f"in training.{_not_protected(results, rounds[-1], name)}"
        )


def _not_protected(results: Results, last: RoundRecord, name: str) -> str:
    """Say for which groups the model was trained, if not for the one that is worst off."""
    weights = group_weights(last, results.groups)
    if weights.get(name, 1.0) >= NO_WEIGHT:
        return ""
    heavy = [group for group, weight in weights.items() if weight >= NO_WEIGHT]
    most = sorted(heavy, key=lambda group: -weights[group])
    return (
        f" “{name}”, which is worst off on test records, had no weight in training, which was for "
        f"{named(most[:3])}: another model may serve it better."
    )


def group_weights(last: RoundRecord, groups: Sequence[str]) -> dict[str, float]:
    """Return the groups' weights in a round; {} if the method has none."""
    if last.weights_over != "groups" or len(last.weights) != len(groups):
        return {}
    return dict(zip(groups, last.weights, strict=True))
