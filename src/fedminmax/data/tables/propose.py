"""Inspect the sites' files and propose a configuration.

Remarks on typos, codes and lost columns are for the screen alone: they may name files, rows and
values.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import polars as pl

from fedminmax.config.file_format import (
    BOOLEANS,
    NO_CHANGES,
    PLAIN,
    FileFormat,
    FormatChanges,
    check_format,
    spellings,
    variants,
)
from fedminmax.config.schema import PROPOSED_MISSING_VALUES, Kind, Protected, Target
from fedminmax.core.errors import InputError
from fedminmax.core.text import MAX_NAMES, counted, first_few, quoted
from fedminmax.data.tables import infer, read_file
from fedminmax.data.tables.code_columns import LEADING_ZERO, target_scores
from fedminmax.data.tables.infer import check_strays, plain_texts, rare_classes
from fedminmax.data.tables.notation import (
    guess_date_format,
    guess_number_format,
    with_plain_numbers,
)
from fedminmax.data.tables.parse_columns import text_of, texts_of

# Values of a column with more distinct texts than this are not listed.
MAX_LISTED_VALUES = 1000


@dataclass(frozen=True)
class InitChoices:
    """The user's choices for a proposal; file formats that are not given are detected.

    A category or group with fewer rows than ``minimum_category`` over all files is not listed.
    Rows with the same value in the ``person_column`` are held out together. ``task`` is
    classification or regression, if the target's values do not decide it; of two classes,
    ``positive`` is the one that rates are about. ``categories`` and ``numbers`` are columns that
    are so whatever they look like; ``dropped`` ones, and survey weights in ``weight``, are no
    features. With ``lists``, long lists of categories are written, too.
    """

    minimum_category: int = infer.DEFAULT_MINIMUM_CATEGORY
    ranges: bool = False
    merge_spellings: bool = False
    format: FormatChanges = NO_CHANGES
    person_column: str | None = None
    task: str | None = None
    positive: str | None = None
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    weight: str | None = None
    lists: bool = False

    @property
    def no_features(self) -> dict[str, str]:
        """Columns that the user leaves out, each with the reason."""
        reasons = dict.fromkeys(self.dropped, "is left out, as --drop says")
        if self.weight is not None:
            reasons[self.weight] = "is the weight of a row; training counts every row once"
        return reasons


@dataclass(frozen=True)
class Proposal:
    """What `fedminmax init` found: files by site (or one with a site column) and columns.

    ``rare_groups`` counts the values of each sensitive attribute that are not listed. ``formats``
    are those of the files, by site. ``remarks`` are for the user alone: they may name rows.
    """

    files: dict[str, Path]
    site_column: str | None
    _: KW_ONLY
    sites: int
    rows: int
    target: Target
    protected: tuple[Protected, ...]
    rare_groups: dict[str, infer.Rare]
    formats: dict[str, FileFormat]
    features: dict[str, infer.Guess]
    choices: InitChoices
    remarks: tuple[str, ...] = ()


def propose(
    paths: Sequence[Path],
    target: str,
    groups: Sequence[str],
    *,
    site_column: str | None,
    choices: InitChoices,
    with_features: bool = True,
) -> Proposal:
    """Read all files and guess what their columns mean, with or without the features."""
    unseen = [column for column in (site_column, choices.person_column) if column]
    named = (target, *groups, *unseen)
    _check_arguments(paths, named, choices, site_column)
    files = site_names(paths)
    tables = [_read(path, named, choices.format) for path in paths]
    for table in tables:
        mentioned = (*named, *choices.categories, *choices.numbers, *choices.no_features)
        table.require(mentioned, "which the command names")
    common, partial = common_columns(tables)
    others = [own for own in common if with_features and own not in (target, *unseen)]
    pooled_target = _pooled(tables, target, choices)
    if choices.task is None:
        fix = "give --task regression (or classification) if all of them are right"
        check_strays(tables, pooled_target, "target", fix)
    guessed_target = infer.guess_target(pooled_target, choices.task)
    _check_classes(guessed_target, tables)
    if choices.positive is not None:
        guessed_target = _with_positive(guessed_target, choices.positive)
    for column in groups:
        fix = "make them missing"
        check_strays(tables, _pooled(tables, column, choices), "group column", fix)
    minimum = choices.minimum_category
    protected = {
        column: infer.guess_protected(_pooled(tables, column, choices), minimum)
        for column in groups
    }
    _check_groups([entry for entry, _ in protected.values()], minimum)
    nested = {
        column
        for table in tables
        for column, kind in table.frame.schema.items()
        if not read_file.is_plain(kind)
    }
    no_features = choices.no_features | dict.fromkeys(
        nested, "holds lists or structures, not one value per row"
    )
    stated = infer.Stated(
        minimum,
        choices.categories,
        choices.numbers,
        lists=choices.lists,
        scores=target_scores(pooled_target, guessed_target),
    )
    features = {
        column: infer.Guess(None, no_features[column])
        if column in no_features
        else infer.guess_feature(_pooled(tables, column, choices), stated)
        for column in others
    }
    if not choices.merge_spellings:
        labels = [] if guessed_target.is_quantity else [target]
        labels += [entry.column for entry, _ in protected.values() if entry.values]
        kinds = {column: guess.feature.kind for column, guess in features.items() if guess.feature}
        for column in (*labels, *(name for name in kinds if kinds[name] is Kind.CATEGORY)):
            _check_spellings(tables, column)
    return Proposal(
        files,
        site_column,
        sites=_pooled(tables, site_column, choices).n_unique() if site_column else len(paths),
        rows=sum(len(table.frame) for table in tables),
        target=guessed_target,
        protected=tuple(entry for entry, _ in protected.values()),
        rare_groups={column: rare for column, (_, rare) in protected.items() if rare.values},
        formats={name: table.format for name, table in zip(files, tables, strict=True)},
        features=features,
        choices=choices,
        remarks=(
            *rare_classes(tables, pooled_target, guessed_target, minimum),
            *partial_note(partial),
            *codes_note(tables, features),
        ),
    )


def site_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Name sites by their files, with folders if the file names are not unique.

    >>> site_names([Path("a/north.csv"), Path("a/south.csv")])
    {'north': PosixPath('a/north.csv'), 'south': PosixPath('a/south.csv')}
    """
    for spell in (
        read_file.name_without_ending,
        lambda path: str(path.with_name(read_file.name_without_ending(path))),
        str,
    ):
        names = {spell(path): path for path in paths}
        if len(names) == len(paths):
            return names
    twice = next(path for path in paths if paths.count(path) > 1)
    raise InputError(f"{twice} is given twice, so two sites have one name; give each file once")


def _read(path: Path, named: Sequence[str], changes: FormatChanges) -> read_file.FileTable:
    """Read a file, and detect the parts of its format that the user did not give."""
    given = check_format(changes.apply(PLAIN), "the command's")
    if changes.encoding is None:
        given = replace(given, encoding=read_file.found_encoding(path))
    table = read_file.read_table(path, named, given)
    columns = [
        text_of(column, PROPOSED_MISSING_VALUES)
        for column in table.frame
        if column.dtype == pl.String
    ]
    detected = table.format
    if changes.decimal is None and changes.thousands is None:
        detected = guess_number_format(columns, detected)
    if changes.date_format is None:
        detected = guess_date_format(columns, detected)
    return replace(table, format=replace(detected, delimiter=given.delimiter, own_dates=False))


def _pooled(tables: Sequence[read_file.FileTable], column: str, choices: InitChoices) -> pl.Series:
    """Return the column of all files, by value unless it has too many values for a list."""
    pooled = pl.concat([plain_texts(table, column) for table in tables]).alias(column)
    if pooled.n_unique() > MAX_LISTED_VALUES:
        return pooled
    written = spellings(pooled)
    name = "folded" if choices.merge_spellings else "value"
    counts = pooled.value_counts(sort=True).rename({column: "spelled", "count": "rows"})
    # Of several spellings, the most frequent one is listed.
    chosen = (
        counts.join(written, on="spelled")
        .sort("rows", "spelled", descending=[True, False])
        .group_by(name, maintain_order=True)
        .agg(pl.col("value").first().alias("chosen"), "spelled")
        .explode("spelled")
    )
    spelling = dict(chosen.select("spelled", "chosen").rows())
    if {text.lower() for text in spelling} <= BOOLEANS.keys():
        spelling = {text: text.lower() for text in spelling}
    return pooled.replace_strict(spelling, default=None, return_dtype=pl.String)


def _check_spellings(tables: Sequence[read_file.FileTable], column: str) -> None:
    texts = pl.concat(
        [with_plain_numbers(texts_of(table.frame[column]), table.format) for table in tables]
    )
    two = variants(spellings(texts, PROPOSED_MISSING_VALUES), ())
    if two is not None:
        raise InputError(
            f"column '{column}' has '{two[0]}' and '{two[1]}', which differ only in letter case or "
            "spaces; correct one of them, or read them as one with --merge-spellings"
        )


def _with_positive(target: Target, positive: str) -> Target:
    """Put the positive class last of two."""
    if positive not in target.classes or len(target.classes) != 2:
        came = quoted(target.classes) if target.classes else "a quantity"
        raise InputError(
            f"--positive {positive}: target '{target.column}' has {came}; name one of two classes"
        )
    other = next(name for name in target.classes if name != positive)
    return replace(target, classes=(other, positive))


def _check_arguments(
    paths: Sequence[Path], named: Sequence[str], choices: InitChoices, site_column: str | None
) -> None:
    if site_column is not None and len(paths) > 1:
        raise InputError(
            f"--site-column {site_column} and {len(paths)} files were given; give one file with a "
            "site column, or one file per site"
        )
    for name in named:
        if named.count(name) > 1:
            raise InputError(
                f"column '{name}' is named twice; target, groups, site and person are different "
                "columns"
            )
    kinds = (*choices.categories, *choices.numbers, *choices.no_features)
    for name in kinds:
        if kinds.count(name) > 1 or (name in choices.no_features and name in named):
            raise InputError(
                f"column '{name}' is named twice; --category, --number, --drop and --weight are "
                "about different columns, and the last two about no other option's"
            )


def _check_groups(protected: Sequence[Protected], minimum: int) -> None:
    for entry in protected:
        if not entry.edges and not entry.values:
            raise InputError(
                f"group column '{entry.column}' has no value with at least {minimum:,} rows; "
                "choose another column, or give a smaller --minimum-category"
            )


def _check_classes(target: Target, tables: Sequence[read_file.FileTable]) -> None:
    if len(target.classes) > infer.MAX_CLASSES:
        raise InputError(
            f"target '{target.column}' has {len(target.classes):,} different values that are not "
            "all numbers; choose another target"
        )
    if target.is_quantity or len(target.classes) > 1:
        return
    rows = sum(len(table.frame) for table in tables)
    came = f"the one class '{target.classes[0]}'" if target.classes else "no value"
    raise InputError(
        f"target '{target.column}' has {came} in all {counted(rows, 'row')} of "
        f"{counted(len(tables), 'file')}; choose another target, or give files with another class"
    )


def common_columns(tables: Sequence[read_file.FileTable]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the columns of all files, and the files of each of the other columns.

    Names that differ only in letter case or spaces are refused: nobody wants to lose such a column.
    """
    having: dict[str, list[str]] = {}
    for table in tables:
        for column in table.frame.columns:
            having.setdefault(column, []).append(table.source)
    common = [column for column, files in having.items() if len(files) == len(tables)]
    partial = {column: files for column, files in having.items() if len(files) < len(tables)}
    folded: dict[str, str] = {}
    for column in partial:
        other = folded.setdefault("".join(column.lower().split()), column)
        if other != column:
            raise InputError(
                f"{partial[column][0]} has a column '{column}' and {partial[other][0]} has "
                f"'{other}'; give them the same name"
            )
    return common, partial


def partial_note(partial: Mapping[str, Sequence[str]]) -> list[str]:
    """Say which columns are not used because some files lack them."""
    if not partial:
        return []
    named = [f"'{column}' (only in {', '.join(files[:2])})" for column, files in partial.items()]
    return [f"columns that some files lack are not used: {first_few(named)}"]


def codes_note(
    tables: Sequence[read_file.FileTable], features: Mapping[str, infer.Guess]
) -> list[str]:
    """Name numbers that may be codes, the word that makes them categories, and lost zeros."""
    columns = [column for column, guess in features.items() if guess.may_be_codes]
    notes = []
    if columns:
        words = shlex.quote(",".join(columns[:MAX_NAMES]))
        first = f"numbers that may be codes are read as quantities: {quoted(columns)}"
        notes.append(f"{first}; for codes give --category {words}")
    for column in (column for column, guess in features.items() if guess.is_code):
        zeros = {table.source: _leading_zeros(table, column) for table in tables}
        if len(set(zeros.values())) > 1:
            having, lacking = (
                [source for source, has in zeros.items() if has is wanted]
                for wanted in (True, False)
            )
            notes.append(
                f"column '{column}' has leading zeros in {', '.join(having[:3])} and none in "
                f"{', '.join(lacking[:3])}: if they were lost there, write them again"
            )
    return notes


def _leading_zeros(table: read_file.FileTable, column: str) -> bool:
    texts = text_of(table.frame[column], PROPOSED_MISSING_VALUES)
    return bool(texts.str.contains(LEADING_ZERO).any())
