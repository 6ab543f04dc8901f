"""From a configuration to encoded sites: read, check, hold out, agree on an encoding, encode.

Notes and warnings tell users what they must know about group sizes before trusting a group's risk.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from torch import Tensor

from fedminmax.config.read import TableConfig
from fedminmax.config.schema import Schema
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, counted_each
from fedminmax.core.randomness import Purpose
from fedminmax.core.small_groups import MERGED_NAME, largest_standard_error, small_group_notes
from fedminmax.core.text import counted, first_few, quoted
from fedminmax.data.tables import agreed_values, data_warnings
from fedminmax.data.tables.agree import agree_on_encoding, bins_in_memory
from fedminmax.data.tables.bins import MIN_RECORDS
from fedminmax.data.tables.codes import check_same_codes, code_warnings
from fedminmax.data.tables.encode import encode, merged_numbers, widened
from fedminmax.data.tables.encoding import Encoding, with_directions
from fedminmax.data.tables.groups import GroupKey, check_listed, group_name
from fedminmax.data.tables.odd_rows import shown_here, without_rows
from fedminmax.data.tables.site_summary import SiteSummary, summarise
from fedminmax.data.tables.sources import ListedRows, OwnedRows, SourceRows, hold_out, read_source

# Beyond this, second-order rounds of a linear model take minutes.
MAX_USUAL_COLUMNS = 1_000


def size_warnings(
    encoding: Encoding, train: Mapping[GroupKey, int], test: Mapping[GroupKey, int]
) -> list[str]:
    """Warn of groups so small that their risk is mostly noise, in one line."""
    least = encoding.schema.minimum_group_size
    rows = zip(encoding.group_names, encoding.count(train), encoding.count(test), strict=True)
    small = [
        (name, [(trained, "training")] * (trained < least) + [(tested, "test")] * (tested < least))
        for name, trained, tested in rows
        if trained < least or (test and tested < least)
    ]
    if not small:
        return []
    named = [
        f"'{name}' ({' and '.join(f'{count:,} {what}' for count, what in few)} rows)"
        for name, few in small
    ]
    regression = encoding.schema.target.is_quantity
    error = largest_standard_error(least, regression=regression)
    size = f"about {100 * error:.2g}% of it" if regression else f"up to {error:.2g}"
    warning = (
        f"groups under the minimum of {least:,} rows, whose risk is mostly noise (its standard "
        f"error with {least:,} rows is {size}): {first_few(named)}"
    )
    return [warning]


def small_group_remarks(encoding: Encoding, train: Mapping[GroupKey, int]) -> list[str]:
    """Note which groups were merged, and which are too small for minimax training."""
    schema = encoding.schema
    merged = [f"'{group_name(key, schema)}'" for key in encoding.merged_groups]
    note = (
        f"merged into '{MERGED_NAME}', with fewer than {schema.minimum_group_size:,} training rows "
        f"each: {', '.join(merged)}"
    )
    rows, names = encoding.count(train), encoding.group_names
    small = small_group_notes(rows, names, schema.minimum_group_size, schema.small_groups)
    return [note, *small] if merged else small


def absence_note(encoding: Encoding, sites: Sequence[SiteSummary]) -> list[str]:
    """Note which groups some sites do not have."""
    counts = [encoding.count(site.group_counts) for site in sites]
    having = {
        name: sum(rows[number] > 0 for rows in counts)
        for number, name in enumerate(encoding.group_names)
    }
    rare = [f"'{name}' with {n} of {len(sites)}" for name, n in having.items() if n < len(sites)]
    return [f"not every site has every group: {', '.join(rare)}"] if rare else []


@dataclass(frozen=True, eq=False)
class OwnedExamples:
    """Encoded rows, their owner, and how many were skipped because they have no group.

    ``merged`` is the number of each row's merged group; -1 if it is in none.
    """

    owner: str
    examples: Examples
    left_out: int
    merged: Tensor


@dataclass(frozen=True, eq=False)
class FederatedTables:
    """Encoded training rows by site, and test rows by site or test file.

    ``summary`` is that of all training rows. ``validation`` are rows by site that were set aside
    to choose the round; they are neither training nor test rows. ``held_out`` and ``set_aside`` are
    the row numbers, in each site's file, of test and of validation rows. Notes inform; warnings
    need attention, and those that are ``kept_warnings``, for files that travel, name no row.
    """

    train: tuple[OwnedExamples, ...]
    test: tuple[OwnedExamples, ...]
    encoding: Encoding
    _: KW_ONLY
    summary: SiteSummary
    held_out: ListedRows
    set_aside: ListedRows
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    kept_warnings: tuple[str, ...]
    validation: tuple[OwnedExamples, ...] = ()

    def with_pairs(self, encoding: Encoding) -> "FederatedTables":
        """Return the same rows with an additive model's pairs, or as a network's inputs."""

        def wider(parts: Sequence[OwnedExamples]) -> tuple[OwnedExamples, ...]:
            codes = [widened(part.examples.x, encoding) for part in parts]
            return tuple(
                replace(part, examples=replace(part.examples, x=x))
                for part, x in zip(parts, codes, strict=True)
            )

        return replace(
            self,
            train=wider(self.train),
            test=wider(self.test),
            validation=wider(self.validation),
            encoding=encoding,
        )

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites' names, in the order of ``train``."""
        return tuple(part.owner for part in self.train)

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        return self.encoding.group_names


def load_federated_tables(config: TableConfig) -> FederatedTables:
    """Read all files and return the federation's encoded rows."""
    _check_test_files(config)
    training_files = [read_source(source, config) for source in config.training]
    test_files = [read_source(source, config.for_measuring) for source in config.test]
    for part in (part for file in training_files for part in file.parts):
        check_listed(part.rows.group, part.rows.group_keys, config.schema, part.source)
    split = [_split(part, config) for file in training_files for part in file.parts]
    training, set_aside, held_out = (list(parts) for parts in zip(*split, strict=True))
    schema = _agree_on_values(training, config.schema)
    # Where it is needed, this counts the rows' categories in the agreed lists.
    training, set_aside = (_completed(parts, schema) for parts in (training, set_aside))
    whole = _completed([part for file in training_files for part in file.parts], schema)
    tested = [part for file in test_files for part in file.parts]
    tested += [part for part in held_out if len(part.rows)]
    tested = _completed(tested, schema)
    summaries = [summarise(part.rows, schema) for part in training]
    by_owner = dict(zip((part.owner for part in training), summaries, strict=True))
    check_same_codes(by_owner, schema)
    total = reduce(add, summaries)
    if total.rows == 0:
        raise InputError(
            "no training row has a value in every sensitive attribute; fill them, or set missing "
            'in [groups] to "own_group"'
        )
    bins = None
    if config.model.has_codes:
        bins = bins_in_memory(schema, total, [part.rows.features for part in training])
    encoding = with_directions(agree_on_encoding(schema, total, bins), config.model.monotone)
    files = [*training_files, *test_files]
    odd = [entry for file in files for entry in file.odd]
    warnings = (
        *_data_warnings(whole, training, summaries, schema),
        *size_warnings(encoding, total.group_counts, _group_counts(tested)),
    )
    return FederatedTables(
        tuple(_encoded(part, encoding) for part in training),
        tuple(_encoded(part, encoding) for part in tested),
        encoding,
        summary=total,
        held_out=_listed(config.held_out, held_out),
        set_aside=_listed(config.validation, set_aside),
        notes=(
            *_unused_note(files, config),
            *_encoding_notes(encoding, total),
            *agreed_values.dropped_notes(config.schema, schema),
            *_width_note(encoding, config),
            *absence_note(encoding, summaries),
            *small_group_remarks(encoding, total.group_counts),
            *_left_out_note([*training, *tested]),
            *_validation_note(set_aside),
            *_weight_note(config),
            *_person_note([*training, *set_aside, *held_out], config),
            *([] if tested else ["there are no test rows: set held_out or test files in [data]"]),
        ),
        warnings=(*shown_here(odd), *warnings),
        kept_warnings=(*without_rows(odd), *warnings),
        validation=tuple(_encoded(part, encoding) for part in set_aside)
        if config.validation
        else (),
    )


def _check_test_files(config: TableConfig) -> None:
    trained = {source.path.resolve(): source.owner for source in config.training}
    for source in config.test:
        path = source.path.resolve()
        if path in trained:
            raise InputError(
                f"[data.test] {source.path.name} is also trained on"
                f"{f' by site {trained[path]!r}' if trained[path] else ''}; give rows that are "
                "not used in training, or set held_out instead"
            )


def _agree_on_values(training: Sequence[OwnedRows], schema: Schema) -> Schema:
    """Return the schema with the categories that the sites agree on where it has no list."""
    rows = [part.rows.features for part in training]
    totals = {
        column: reduce(add, (agreed_values.bucket_counts(part, column) for part in rows))
        for column in schema.open_columns
    }
    named = {
        column: [agreed_values.common_values(part, column, total) for part in rows]
        for column, total in totals.items()
    }
    return agreed_values.with_values(schema, named) if named else schema


def _completed(parts: Sequence[OwnedRows], schema: Schema) -> list[OwnedRows]:
    return [replace(part, rows=agreed_values.complete(part.rows, schema)) for part in parts]


def _data_warnings(
    whole: Sequence[OwnedRows],
    training: Sequence[OwnedRows],
    summaries: Sequence[SiteSummary],
    schema: Schema,
) -> list[str]:
    """Warn of records in common, of sites that differ, and of columns that tell too much."""
    owned = {part.owner: part.rows for part in whole}
    by_owner = dict(zip((part.owner for part in training), summaries, strict=True))
    rows = [part.rows for part in training]
    return [
        *data_warnings.overlap_warnings(owned, schema),
        *data_warnings.constant_target_warnings(by_owner, schema),
        *data_warnings.unit_warnings(by_owner, schema),
        *code_warnings(by_owner, schema),
        *data_warnings.leak_warnings(rows, schema),
        *data_warnings.protected_copy_warnings(rows, schema),
    ]


def _listed(share: float, parts: Sequence[OwnedRows]) -> ListedRows:
    return ListedRows(share, {part.owner: part.rows.numbers for part in parts if len(part.rows)})


def _split(part: OwnedRows, config: TableConfig) -> tuple[OwnedRows, OwnedRows, OwnedRows]:
    """Split a site's rows into those to train on, those set aside and those held out."""
    by_row = config.privacy is not None
    left, held_out = _take_out(part, config.held_out, config, Purpose.FOLDS, by_row=by_row)
    return *_take_out(left, config.validation, config, Purpose.VALIDATION), held_out


def _take_out(
    part: OwnedRows, share: float, config: TableConfig, purpose: Purpose, *, by_row: bool = False
) -> tuple[OwnedRows, OwnedRows]:
    """Split a site's rows into those that stay and those that are held out or set aside."""
    kept, taken = hold_out(
        part.rows, share, seed=config.seed, site=part.owner, purpose=purpose, by_row=by_row
    )
    left = replace(part, rows=part.rows.take(kept)) if len(taken) else part
    return left, replace(part, rows=part.rows.take(taken), left_out=0)


def _validation_note(parts: Sequence[OwnedRows]) -> list[str]:
    rows = sum(len(part.rows) for part in parts)
    return [f"{rows:,} rows are set aside to choose the round (validation)"] if rows else []


def _weight_note(config: TableConfig) -> list[str]:
    if config.weight_column is None:
        return []
    note = (
        f"weights in '{config.weight_column}' are not used: every row counts once, and the results "
        "are about these rows, not about the population that they were drawn from"
    )
    return [note]


def _person_note(parts: Sequence[OwnedRows], config: TableConfig) -> list[str]:
    """Note that rows of a person stay together, and what that does not change."""
    owned = [part.rows.person for part in parts if part.rows.person is not None]
    rows = sum(map(len, owned))
    persons = len(np.unique(np.concatenate(owned))) if owned else 0
    if persons == rows or not (config.held_out or config.validation):
        return []
    note = (
        f"{rows:,} rows are of {counted(persons, 'person')} ('{config.schema.person_column}'), "
        "whose rows are held out together; intervals take rows for independent and are too narrow "
        "where a person has several"
    )
    return [note]


def _encoded(part: OwnedRows, encoding: Encoding) -> OwnedExamples:
    examples = encode(part.rows, encoding, part.source)
    return OwnedExamples(part.owner, examples, part.left_out, merged_numbers(part.rows, encoding))


def _group_counts(parts: Sequence[OwnedRows]) -> Counter[GroupKey]:
    counts: Counter[GroupKey] = Counter()
    for part in parts:
        for index, count in enumerate(counted_each(part.rows.group).tolist()):
            counts[part.rows.group_keys[index]] += count
    return counts


def _unused_note(files: Sequence[SourceRows], config: TableConfig) -> list[str]:
    named = (*config.schema.columns, config.weight_column)
    columns = (column for file in files for column in file.unused_columns)
    unused = dict.fromkeys(column for column in columns if column not in named)
    return (
        [f"columns {quoted(list(unused))} are not in the configuration: not used"] if unused else []
    )


def _encoding_notes(encoding: Encoding, total: SiteSummary) -> list[str]:
    classes = encoding.schema.target.classes
    absent = [name for label, name in enumerate(classes) if label not in total.class_counts]
    notes = [
        f"feature '{column}' is constant in training{_but_for_few(column, total)}: dropped"
        for column in encoding.dropped
    ]
    return notes + [f"class '{name}' has no training row" for name in absent]


def _width_note(encoding: Encoding, config: TableConfig) -> list[str]:
    """Say that a model with a column for every code takes long, and which one does not."""
    widths = {f.column: len(f.categories) for f in encoding.schema.features if f.categories}
    columns = len(encoding.names)
    # A guarantee of privacy needs one of these models.
    other_kind = encoding.is_coded or config.model.hidden or config.privacy is not None
    if other_kind or columns <= MAX_USUAL_COLUMNS or not widths:
        return []
    widest = max(widths, key=lambda column: widths[column])
    note = (
        f"a row has {columns:,} columns, '{widest}' alone {widths[widest]:,}, and training takes "
        'long; kind = "additive" in [model] takes a fraction of that'
    )
    return [note]


def _but_for_few(column: str, total: SiteSummary) -> str:
    """Say that a column does vary, but in so few rows that they would be alone in a bin."""
    sums = total.quantities.get(column)
    varies = sums is not None and sums.count > 0 and sums.variance > 0
    return f" but for fewer than {MIN_RECORDS} rows" if varies else ""


def _left_out_note(parts: Sequence[OwnedRows]) -> list[str]:
    counts: Counter[str] = Counter()
    for part in parts:
        counts[part.owner] += part.left_out
    skipped = [f"{owner} {count:,}" for owner, count in counts.items() if count]
    if not skipped:
        return []
    return [
        f"rows skipped without a protected value, or with an unlisted one: {', '.join(skipped)}"
    ]
