"""Measure a trained model on further files, as it was measured on its own test rows.

Rows of groups that training never saw have no group risk to be part of: they are skipped, counted
and named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import Source, read_config
from fedminmax.data.tables.encode import encode, in_known_groups
from fedminmax.data.tables.file_format import FormatChanges, check_format
from fedminmax.data.tables.read_file import name_without_ending
from fedminmax.data.tables.sources import read_source
from fedminmax.data.tables.words import listed
from fedminmax.report.model_file import load_model
from fedminmax.report.run_folder_records import Measured
from fedminmax.report.table_metrics import measure


@dataclass(frozen=True)
class MeasuredFiles:
    """Metrics by group, the rows of unknown groups that were skipped, and what to warn of."""

    test: Measured
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]


def measure_files(folder: Path, files: Sequence[Path], changes: FormatChanges) -> MeasuredFiles:
    """Return metrics by group over all rows of these files whose group training knows."""
    saved = load_model(folder)
    config = read_config(folder / "config.toml")
    own = check_format(changes.apply(config.format), "the command's")
    read = [read_source(Source(path, name_without_ending(path), own), config) for path in files]
    warnings = [warning for source in read for warning in source.warnings]
    skipped: Counter[str] = Counter()
    examples = []
    for part in (part for source in read for part in source.parts):
        rows, unknown = in_known_groups(part.rows, saved.encoding)
        examples.append(encode(rows, saved.encoding, part.source))
        skipped.update(unknown)
        if unknown:
            warnings.append(_skipped_words(part.source, unknown))
    if skipped and not any(map(len, examples)):
        raise InputError(
            f"no row is of a group that training knows ({listed(saved.groups)}); the groups are "
            f"{listed(list(skipped))}: give rows of the trained groups"
        )
    return MeasuredFiles(measure(saved, examples), dict(skipped), tuple(warnings))


def _skipped_words(source: str, unknown: Mapping[str, int]) -> str:
    names = listed([f"{name} ({rows:,})" for name, rows in unknown.items()])
    return (
        f"{source}: {counted(sum(unknown.values()), 'row is', 'rows are')} skipped, because "
        f"training had no row of such groups: {names}"
    )
