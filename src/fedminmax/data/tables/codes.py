"""Whether sites code the same thing in the same way: sex as 1 and 2, F and M, or female and male.

Read as they stand, three such files have six groups, and a target coded in two ways has four
classes. Nobody but the sites knows what a code means, so such tables are refused until the
configuration maps the codes, or states that they are different things.

Where all sites can be compared, those that share hardly any value are suspicious. A site that
sees only its own rows compares them with the lists of the configuration: it can tell abbreviations
from words, and numbers from texts.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedminmax.config.file_format import NUMBER
from fedminmax.config.messages import toml_key, toml_string
from fedminmax.config.schema import Kind, Schema
from fedminmax.core.errors import InputError
from fedminmax.core.text import listed, quoted
from fedminmax.data.tables.groups import MERGED_VALUE, OTHER_VALUE
from fedminmax.data.tables.site_summary import SiteSummary

# Sites use the same codes if those that both have cover this share of the rows of one of them.
MIN_COVERED = 0.2
# A code that is expected this often at a site, and does not occur, is not absent by chance.
MIN_EXPECTED = 30.0
# Rows with a value that is not listed, if there is no other, that are no chance.
MIN_UNLISTED = 20
OPEN = "..."
# How many sites a message names.
MAX_SITES = 3


class DifferentCodesError(InputError):
    """Sites code a column in different ways."""


@dataclass(frozen=True)
class CodedColumn:
    """A column of labels: the section that maps it, and the rows of each value at each site.

    ``is_feature`` columns may have values of their own at every site, such as towns.
    """

    name: str
    section: str
    rows: Mapping[str, Mapping[str, int]]
    is_feature: bool = False


def check_same_codes(sites: Mapping[str, SiteSummary], schema: Schema) -> None:
    """Refuse labels, groups and categories that some sites code in another way than others."""
    _check_categories(sites, schema)
    for column in _coded_columns(sites, schema):
        blocks = _blocks(column.rows)
        if len(blocks) > 1 and _is_suspicious(column, blocks):
            raise DifferentCodesError(_refusal(column, blocks))


def check_own_codes(summary: SiteSummary, schema: Schema, site: str) -> None:
    """Refuse a site's rows if the configuration lists what looks like another coding of them."""
    _check_categories({site: summary}, schema)
    for column in _coded_columns({site: summary}, schema):
        values = set(column.rows[site])
        others = _listed_values(column.name, schema) - values
        if len(others) >= len(values) > 0 and _looks_like(values, others):
            raise DifferentCodesError(
                f"column '{column.name}' has {quoted(sorted(values))} here, and the configuration "
                f"also lists {quoted(sorted(others))}: if these mean the same, ask the coordinator "
                f"to {_map_line(column.section, _proposal(sorted(values | others)))}; if they are "
                f"different things, to {_own_values_line(column.name)}"
            )


def _check_categories(sites: Mapping[str, SiteSummary], schema: Schema) -> None:
    """Refuse a site none of whose values of a column is among its categories."""
    for feature in schema.features:
        if feature.kind is not Kind.CATEGORY or feature.column in schema.own_values:
            continue
        if feature.from_sites:
            # A site may have rare values alone.
            continue
        for name, summary in sites.items():
            *counts, _, unlisted = summary.categories[feature.column]
            if sum(counts) == 0 and unlisted >= MIN_UNLISTED:
                raise DifferentCodesError(
                    f"column '{feature.column}' has none of its categories "
                    f"{quoted(feature.categories)} in {unlisted:,} rows of '{name}': if these rows "
                    f"code them differently, say how in {_section('data', feature.column)}; if "
                    "they have other ones, add these to categories in "
                    f"[features.{toml_key(feature.column)}]"
                )


def code_warnings(sites: Mapping[str, SiteSummary], schema: Schema) -> list[str]:
    """Warn of numbers as codes that some sites do not have, although others often do."""
    warnings = []
    for column in _coded_columns(sites, schema):
        if column.is_feature or len(sites) < 2:
            continue
        total = sum((Counter(counts) for counts in column.rows.values()), Counter[str]())
        numbers = [value for value in total if re.match(NUMBER, value)]
        lacking = {
            name: absent
            for name, counts in column.rows.items()
            if (absent := [v for v in numbers if v not in counts and _expected(v, counts, total)])
        }
        if lacking:
            named = _first_sites(list(lacking))
            absent = sorted({value for counts in lacking.values() for value in counts})
            warnings.append(
                f"'{column.name}' is never {quoted(absent)} at {named}, where many such rows "
                "would be expected: check that its numbers mean the same at all sites"
            )
    return warnings


def _expected(value: str, counts: Mapping[str, int], total: Mapping[str, int]) -> bool:
    rows, others = sum(counts.values()), sum(total.values()) - sum(counts.values())
    return others > 0 and rows * total[value] / others >= MIN_EXPECTED


def _coded_columns(sites: Mapping[str, SiteSummary], schema: Schema) -> Iterator[CodedColumn]:
    target = schema.target
    groups = [entry.column for entry in schema.protected]
    if not (target.is_quantity or target.column in schema.own_values):
        names = target.classes
        rows = {
            site: {names[label]: count for label, count in summary.class_counts.items()}
            for site, summary in sites.items()
        }
        yield CodedColumn(target.column, _section("data", target.column), rows)
    for index, entry in enumerate(schema.protected):
        if not (entry.edges or entry.column in schema.own_values):
            rows = {name: _group_values(summary, index) for name, summary in sites.items()}
            yield CodedColumn(entry.column, _section("groups", entry.column), rows)
    for feature in schema.features:
        column = feature.column
        if feature.kind is not Kind.CATEGORY or feature.is_open:
            continue
        if column not in (*groups, *schema.own_values):
            rows = {
                site: {
                    value: count
                    for value, count in zip(
                        feature.categories, summary.categories[column], strict=False
                    )
                    if count
                }
                for site, summary in sites.items()
            }
            yield CodedColumn(column, _section("data", column), rows, is_feature=True)


def _section(name: str, column: str) -> str:
    return f"[{name}.map.{toml_key(column)}]"


def _group_values(summary: SiteSummary, index: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for key, count in summary.group_counts.items():
        value = key[index]
        if value not in (None, OTHER_VALUE, MERGED_VALUE):
            counts[str(value)] += count
    return dict(counts)


def _listed_values(column: str, schema: Schema) -> set[str]:
    if column == schema.target.column:
        return set(schema.target.classes)
    by_column = {feature.column: feature.categories for feature in schema.features}
    by_column |= {entry.column: entry.values for entry in schema.protected}
    return set(by_column[column])


def _blocks(rows: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Return the sites in blocks: only within one do they have values in common."""
    blocks: list[list[str]] = []
    for name in (name for name, member in rows.items() if member):
        near = [
            block for block in blocks if any(_share(rows[name], rows[member]) for member in block)
        ]
        blocks = [block for block in blocks if block not in near]
        blocks.append([member for block in near for member in block] + [name])
    return blocks


def _share(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    common = one.keys() & other.keys()
    return any(
        sum(counts[value] for value in common) >= MIN_COVERED * sum(counts.values())
        for counts in (one, other)
    )


def _is_suspicious(column: CodedColumn, blocks: Sequence[Sequence[str]]) -> bool:
    """Return whether a block's values may be another coding of those of the other blocks.

    One value alone may be all that a site has: a hospital for women.
    """
    for block in blocks:
        here = _values(column, block)
        others = {value for other in blocks if other != block for value in _values(column, other)}
        here, others = here - others, others - here
        if _looks_like(here, others) or (not column.is_feature and min(len(here), len(others)) > 1):
            return True
    return False


def _values(column: CodedColumn, block: Sequence[str]) -> set[str]:
    return {value for name in block for value in column.rows[name]}


def _looks_like(here: set[str], others: set[str]) -> bool:
    """Return whether numbers stand for texts, or abbreviations for words."""
    if not here or not others:
        return False
    numbers = [{value for value in values if re.match(NUMBER, value)} for values in (here, others)]
    if (numbers[0] == here and not numbers[1]) or (numbers[1] == others and not numbers[0]):
        return True
    return _abbreviates(here, others) or _abbreviates(others, here)


def _abbreviates(short: set[str], words: set[str]) -> bool:
    """Return whether each text is the beginning of one word, and no two of the same."""
    meant = [_word_of(text, words) for text in short]
    return None not in meant and len(set(meant)) == len(meant)


def _word_of(short: str, words: set[str]) -> str | None:
    start = short.lower().rstrip(".")
    longer = [
        word
        for word in words
        if start and len(word) > len(start) and word.lower().startswith(start)
    ]
    return longer[0] if len(longer) == 1 else None


def _refusal(column: CodedColumn, blocks: Sequence[Sequence[str]]) -> str:
    having = []
    for block in blocks:
        verb = "has" if len(block) == 1 else "have"
        having.append(f"{_first_sites(block)} {verb} {quoted(sorted(_values(column, block)))}")
    every = sorted({value for block in blocks for value in _values(column, block)})
    return (
        f"column '{column.name}' is coded differently: {'; '.join(having)}: if these mean the "
        f"same, {_map_line(column.section, _proposal(every))}; if they are different things, "
        f"{_own_values_line(column.name)}"
    )


def _first_sites(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SITES} more" if len(names) > MAX_SITES else ""
    return listed([f"'{name}'" for name in names[:MAX_SITES]]) + more


def _proposal(values: Sequence[str]) -> dict[str, str]:
    """Return what to write for each abbreviation and number; what cannot be guessed is open."""
    words = set(values)
    guesses = {text: _word_of(text, words - {text}) for text in values}
    guessed = {text: word for text, word in guesses.items() if word is not None}
    texts = [text for text in values if not re.match(NUMBER, text)]
    numbers = [text for text in values if re.match(NUMBER, text)] if texts else []
    if not guessed and not numbers:
        return dict.fromkeys(values[:1], OPEN)
    return {**dict.fromkeys(numbers, OPEN), **guessed}


def _map_line(section: str, proposal: Mapping[str, str]) -> str:
    lines = [f"{toml_key(text)} = {toml_string(word)}" for text, word in proposal.items()]
    return f"add {section} with {', '.join(lines)}"


def _own_values_line(column: str) -> str:
    return f"add own_values = [{toml_string(column)}] to [data]"
