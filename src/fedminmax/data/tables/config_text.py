"""A proposed configuration as commented TOML."""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedminmax.config.file_format import FileFormat, changes_between
from fedminmax.config.messages import toml_key, toml_string
from fedminmax.config.schema import PROPOSED_MISSING_VALUES
from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import MINIMUM_GROUP
from fedminmax.core.text import counted
from fedminmax.data.tables.infer import Guess, Rare
from fedminmax.data.tables.propose import Proposal
from fedminmax.methods.card import Pace
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.defaults import (
    DEFAULT_METHOD,
    DEFAULT_ROUNDS,
    default_baseline,
    default_loss,
    default_ridge,
)
from fedminmax.methods.look_ahead import DEFAULT_GAP

LINE_LENGTH = 100


def config_text(proposal: Proposal, path: Path) -> str:
    """Write the configuration for this path; files are named relative to its folder."""
    lines = [
        "# What fedminmax found in the files. Look through it, correct it, then:",
        f"#   fedminmax train {path.name}",
        "#",
        "# This file is copied into run folders and kits. Of the rows it has class labels,",
        "# categories and group values, which everybody agrees on by using it; no other value.",
        "",
        *_data(proposal, path.parent),
        "",
        *_groups(proposal),
        "",
        "# What the model sees. kind: numeric, category, boolean or date (a date may have a",
        '# format such as "%d/%m/%Y"). Remove a section to skip its column. A category that is not',
        "# listed counts as none of them, in training and in predictions.",
        "",
        *_features(proposal),
        *_model(proposal),
    ]
    return "\n".join(lines) + "\n"


def with_seed(text: str, seed: int) -> str:
    r"""Return a configuration's text with another seed.

    >>> print(with_seed('[data]\ntarget = "y"\nseed = 3  # of all\n[model]', 4))
    [data]
    target = "y"
    seed = 4  # of all
    [model]
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if re.match(r"\s*\[\s*data\s*\]", line)), None)
    if start is not None:
        ends = (n for n, line in enumerate(lines) if n > start and line.lstrip().startswith("["))
        section = range(start + 1, next(ends, len(lines)))
        own = next((n for n in section if re.match(r"\s*seed\s*=", lines[n])), None)
        if own is None:
            lines.insert(start + 1, f"seed = {seed}")
        else:
            lines[own] = re.sub(r"=\s*[0-9_]+", f"= {seed}", lines[own], count=1)
    changed = "\n".join(lines) + "\n" * text.endswith("\n")
    if tomllib.loads(changed).get("data", {}).get("seed") != seed:
        raise InputError("the seed cannot be set in this configuration; write seed = 0 in [data]")
    return changed


def _data(proposal: Proposal, folder: Path) -> Iterator[str]:
    target = proposal.target
    yield "[data]"
    yield f"target = {toml_string(target.column)}"
    if target.is_quantity:
        yield 'task = "regression"          # for classes: "classification" and classes = [...]'
    else:
        yield 'task = "classification"      # or "regression", without classes'
        if len(target.classes) == 2:
            yield "# The last of two classes is the positive one, which rates are about."
        yield from _list("classes", target.classes)
    yield "held_out = 0.2               # share of each site's rows to test on"
    person = proposal.choices.person_column
    column = f"{'' if person else '# '}person_column = {toml_string(person or 'patient')}"
    yield f"{column:<28} # rows of one person are held out together"
    yield "# validation = 0.1           # share of the others to choose the round by (mlp: 0.1)"
    yield "seed = 0                     # of all randomness"
    yield from _format(proposal)
    merge = f"merge_spellings = {str(proposal.choices.merge_spellings).lower()}"
    yield f"{merge:<28} # true reads 'ill', 'ILL' and ' ill' as one"
    yield from _list("missing_values", PROPOSED_MISSING_VALUES)
    files = {name: _relative(path, folder) for name, path in proposal.files.items()}
    if proposal.site_column:
        yield f"file = {next(iter(files.values()))}"
        yield f"site_column = {toml_string(proposal.site_column)}"
    else:
        yield ""
        yield "# One file per site: name = file"
        yield "[data.sites]"
        yield from (f"{toml_key(name)} = {file}" for name, file in files.items())
        yield from _other_formats(proposal)
    yield ""
    yield "# Test files, instead of held_out: name = file"
    yield "# [data.test]"
    yield f'# {toml_key(next(iter(files)))} = "test.csv"'


def _format(proposal: Proposal) -> Iterator[str]:
    own = common_format(proposal)
    yield f"{f'delimiter = {toml_string(own.delimiter)}':<28} # or one character, for CSV files"
    yield f"{f'encoding = {toml_string(own.encoding)}':<28} # auto: UTF-8; or cp1252, latin-1, ..."
    yield f"{f'decimal = {toml_string(own.decimal)}':<28} # or a comma"
    yield f"{f'thousands = {toml_string(own.thousands)}':<28} # or a comma, a dot, a space, '"
    prefix = "" if own.date_format else "# "
    date_format = f"{prefix}date_format = {toml_string(own.date_format or '%d.%m.%Y')}"
    yield f"{date_format:<28} # of date columns; 2024-12-31 is always read"


def _other_formats(proposal: Proposal) -> Iterator[str]:
    """Write what is different in some sites' files."""
    common = common_format(proposal)
    for name, own in proposal.formats.items():
        if own != common:
            yield ""
            yield f"[data.formats.{toml_key(name)}]"
            for key, value in vars(changes_between(common, own)).items():
                if value is not None:
                    yield f"{key} = {toml_string(value)}"


def common_format(proposal: Proposal) -> FileFormat:
    """Return the format that most of the files have."""
    return Counter(proposal.formats.values()).most_common(1)[0][0]


def _groups(proposal: Proposal) -> Iterator[str]:
    yield "# Groups are the values of these columns, crossed, that occur in training."
    yield "[groups]"
    yield from _list("columns", [entry.column for entry in proposal.protected])
    yield 'missing = "error"            # a row without a value; or "own_group", "leave_out"'
    unlisted = "own_group" if proposal.rare_groups else "error"
    setting = f'unlisted = "{unlisted}"'
    yield f"{setting:<28} # a value that is not listed; error, own_group or leave_out"
    yield "as_features = false          # true lets the model see these columns"
    yield f"minimum_size = {MINIMUM_GROUP}            # groups with fewer training rows are small"
    yield 'small = "share"              # they are not trained for; or "merge" them, or "play"'
    listed = [entry for entry in proposal.protected if entry.values]
    minimum = proposal.choices.minimum_category
    if listed:
        yield ""
        yield "# The values that make groups."
        yield "[groups.values]"
        for entry in listed:
            rare = proposal.rare_groups.get(entry.column)
            if rare:
                yield f"# {rare_note(rare, minimum, 'value')}"
            yield from _list(toml_key(entry.column), entry.values)
    banded = [entry for entry in proposal.protected if entry.edges]
    if banded:
        yield ""
        yield "# Bands of numeric columns: an edge belongs to the band above it."
        yield "[groups.bands]"
        for entry in banded:
            edges = ", ".join(f"{edge:.10g}" for edge in entry.edges)
            yield f"{toml_key(entry.column)} = [{edges}]"


def _features(proposal: Proposal) -> Iterator[str]:
    protected = [entry.column for entry in proposal.protected]
    for column, guess in proposal.features.items():
        yield from _feature(column, guess, proposal, protected=column in protected)
        yield ""


def _feature(column: str, guess: Guess, proposal: Proposal, *, protected: bool) -> Iterator[str]:
    header = f"[features.{toml_key(column)}]"
    minimum = proposal.choices.minimum_category
    if guess.feature is None:
        yield f"# {header} is skipped: it {guess.remark}."
        return
    if guess.remark:
        yield f"# {guess.remark}"
    if guess.may_be_codes:
        yield "# If these numbers are codes: init --category lists them as categories."
    if guess.rare.values:
        yield f"# {rare_note(guess.rare, minimum, 'category')}"
    if proposal.choices.ranges and guess.limits:
        low, high = (f"{limit:.10g}" for limit in guess.limits)
        yield f"# from {low} to {high}"
    yield f"{header}{'  # protected: seen only with as_features = true' if protected else ''}"
    yield f'kind = "{guess.feature.kind.value}"'
    if guess.unit:
        yield f"unit = {toml_string(guess.unit)}"
    if guess.feature.date_format:
        yield f"format = {toml_string(guess.feature.date_format)}"
    if guess.feature.categories:
        yield from _list("categories", guess.feature.categories)


def _model(proposal: Proposal) -> Iterator[str]:
    regression, pace = proposal.target.is_quantity, CARDS[DEFAULT_METHOD].pace
    loss = default_loss(pace, classifies=not regression, linear=True)
    ridge = default_ridge(pace, loss, linear=True)
    yield "[model]"
    if regression:
        yield 'kind = "linear"              # or "spline", or "mlp" with hidden = [64, 64]'
        yield f'loss = "{loss}"'
    else:
        yield 'kind = "logistic"            # or "spline", or "mlp" with hidden = [64, 64]'
        yield f'loss = "{loss}"       # or "brier", for which nothing can be proved'
    yield f"{f'ridge = {ridge:g}':<28} # penalty ridge/2 |parameters|^2; an mlp has none"
    yield ""
    yield "# Any method and option that 'fedminmax methods' lists; what is commented out has the"
    yield "# method's own default."
    yield "[method]"
    yield f'name = "{DEFAULT_METHOD}"      # the paper\'s Algorithm 1 is "fedminmax"'
    yield "participation = 1.0          # share of sites in each round"
    rounds = f"# rounds = {DEFAULT_ROUNDS[pace]}"
    yield f"{rounds:<28} # at most; fedminmax: {DEFAULT_ROUNDS[Pace.ONE_STEP]}"
    yield f"{f'# gap = {DEFAULT_GAP:g}':<28} # stop when the worst risk is this close to the lowest"
    baseline = f'# baseline = "{default_baseline(pace)}"'
    yield f'{baseline:<28} # the plain model, to compare with; or another method, or "none"'
    yield "# patience = 20              # stop after this many rounds without improvement"
    yield ""
    yield "# What the model is for: on the first screen of the report, and in the model card."
    yield "# [report]"
    yield '# title = "..."'
    yield '# intended_use = "..."'
    yield '# not_for = "..."'
    yield ""
    yield "# Where else each round is written."
    yield "# [logging]"
    yield "# tensorboard = true"
    yield '# mlflow_uri = "sqlite:///mlflow.db"'


def _list(key: str, entries: Sequence[str]) -> Iterator[str]:
    """Write a list on one line if it fits, else one entry per line."""
    quoted = [toml_string(entry) for entry in entries]
    line = f"{key} = [{', '.join(quoted)}]"
    if len(line) <= LINE_LENGTH:
        yield line
        return
    yield f"{key} = ["
    yield from (f"    {entry}," for entry in quoted)
    yield "]"


def _relative(path: Path, folder: Path) -> str:
    return toml_string(Path(os.path.relpath(path, folder)).as_posix())


def rare_note(rare: Rare, minimum: int, singular: str) -> str:
    """Say how many values are not listed.

    >>> rare_note(Rare(2, 7), 10, "category")
    '2 categories with fewer than 10 rows (7 rows in all) are skipped'
    """
    plural = {"category": "categories", "value": "values"}[singular]
    few, verb = counted(rare.values, singular, plural), "is" if rare.values == 1 else "are"
    rows = counted(rare.rows, "row")
    return f"{few} with fewer than {minimum:,} rows ({rows} in all) {verb} skipped"
