"""The tables that New York City's Local Law 144 asks for (6 RCNY 5-301), from a run's test records.

By sex, by race/ethnicity and by their intersection: records, selection rate and impact ratio, which
is a category's rate divided by the highest one. Categories with less than 2% of the records may be
left out, with their number; records of unknown category are counted. The law asks for scoring rates
(the share above the median) where there is no selection; a run does not record scores.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted, markdown_table, markdown_text
from fedminmax.findings.disclosure import FEWER, LEAST, is_small, publishable
from fedminmax.findings.text import NOTHING
from fedminmax.metrics.intervals import Bounds, Estimate, Scored, mean_interval
from fedminmax.metrics.parity import ratio
from fedminmax.metrics.row_scores import SELECTED
from fedminmax.report.documents import NO_CLAIM, NOT_SHOWN, Known, open_question

SMALL_SHARE = 0.02


@dataclass(frozen=True)
class Category:
    """One line: its records, the selected and the positive ones, and whether its count is told."""

    name: str
    rows: int
    selected: float
    told: bool = True
    positives: int = 0


def impact_ratio_tables(known: Known) -> str:
    """Return the tables in Markdown."""
    results = known.results
    if SELECTED not in results.test.metrics:
        raise InputError(
            f"{known.run.chosen.folder} predicts no class of two, so nobody is selected, and Local "
            "Law 144 is about selection; give a run with two classes"
        )
    attributes = known.attributes
    levels = results.test.metrics[SELECTED].by_group
    # The counts of the report, or both together would tell what neither does.
    counts = publishable([own.rows for own in levels])
    positives = results.test.positives or (0,) * len(levels)
    groups = [
        Category(
            name,
            own.rows,
            own.rows * (own.value or 0.0),
            counts.shown[place] is not None,
            positives[place],
        )
        for place, (name, own) in enumerate(zip(results.groups, levels, strict=True))
    ]
    unknown = [own for own in groups if _is_unknown(own.name, attributes)]
    known_groups = [own for own in groups if own not in unknown]
    lines = [
        f"# Impact ratios: {known.title}",
        "",
        f"Selected: predicted “{results.classes[1]}”. Measured on {results.finished}. {NO_CLAIM}",
        "",
    ]
    # With those of fewer than ten records a sum would tell how many these are.
    large = [own for own in known_groups if own.rows >= LEAST]
    for number, attribute in enumerate(attributes if len(attributes) > 1 else ()):
        lines += [f"## By {attribute}", "", _table(_within(large, number, attributes)), ""]
    lines += [f"## By {' and '.join(attributes)}", "", _table(known_groups), ""]
    missing = _shown(sum(own.rows for own in unknown), told=all(own.told for own in unknown))
    lines += [f"Records of unknown category, not in the tables: {missing}.", ""]
    if counts.hidden:
        lines += [markdown_text(counts.note(results.groups, "test record")), ""]
    lines += [
        open_question("date and source of the data, and which of it is historical or test data"),
        "",
        open_question("do these attributes and categories match those of EEO-1 (sex, race)?"),
    ]
    left_out = sum(is_small(own.rows) for own in known_groups)
    if left_out and len(attributes) > 1:
        groups_of = counted(left_out, "combination")
        lines.insert(4, f"{groups_of} of {FEWER} records: in the last table alone.\n")
    return "\n".join(lines) + "\n"


def _shown(rows: int, *, told: bool) -> str:
    return f"{rows:,}" if told else NOT_SHOWN


def _is_unknown(name: str, attributes: Sequence[str]) -> bool:
    parts = name.split(" / ")
    return name == MERGED_NAME or any(f"{own} missing" in parts for own in attributes)


def _within(groups: Sequence[Category], number: int, attributes: Sequence[str]) -> list[Category]:
    """Add up the groups of each value of one attribute."""
    found: dict[str, Category] = {}
    for own in groups:
        parts = own.name.split(" / ")
        if len(parts) != len(attributes):
            raise InputError(
                f"group '{own.name}' has no value for each of {', '.join(attributes)}; rename "
                "values that contain ' / '"
            )
        before = found.get(parts[number], Category(parts[number], 0, 0.0))
        found[parts[number]] = Category(
            parts[number],
            before.rows + own.rows,
            before.selected + own.selected,
            before.told and own.told,
            before.positives + own.positives,
        )
    return list(found.values())


def _table(categories: Sequence[Category]) -> str:
    everyone = sum(own.rows for own in categories)
    rates = {
        own.name: mean_interval(
            Scored.of_sums(own.rows, own.selected, own.selected), Bounds(0.0, 1.0)
        )
        for own in categories
        if own.rows >= max(LEAST, SMALL_SHARE * everyone)
    }
    headers = ["category", "records", "selection rate", "impact ratio", "remark"]
    highest = max((own.value for own in rates.values()), default=math.nan)
    best = next((name for name, own in rates.items() if own.value == highest), "")
    lines = [_line(own, rates, best) for own in categories]
    return markdown_table(headers, lines)


def _line(own: Category, rates: Mapping[str, Estimate], best: str) -> list[str]:
    rows = _shown(own.rows, told=own.told)
    rate = rates.get(own.name)
    if rate is None:
        return [own.name, rows, NOTHING, NOTHING, "under 2% of the records"]
    selected_rows = round(own.selected)
    if is_small(own.positives) or is_small(own.rows - own.positives):
        return [own.name, rows, NOTHING, NOTHING, f"{FEWER} are of one class"]
    if is_small(selected_rows) or is_small(own.rows - selected_rows):
        return [own.name, rows, NOTHING, NOTHING, f"{FEWER} are selected, or are not"]
    selected = f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f})"
    if own.name == best:
        return [own.name, rows, selected, "1.00", "highest rate" if rate.value else "none selected"]
    found = ratio(rate, rates[best])
    if math.isnan(found.value):
        return [own.name, rows, selected, NOTHING, "nobody is selected"]
    high = f"{found.high:.2f}" if math.isfinite(found.high) else "no limit"
    remark = "below four fifths" if found.value < 0.8 else ""
    return [own.name, rows, selected, f"{found.value:.2f} ({found.low:.2f} to {high})", remark]
