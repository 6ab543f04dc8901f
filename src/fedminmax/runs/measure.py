"""Measure models by group on further rows: those of other files, and each site's own.

The sites' personal models are each measured on their own site's test rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from fedminmax.config.file_format import FormatChanges
from fedminmax.config.read import Source, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.text import counted, quoted
from fedminmax.data.tables.encode import distance_warnings, drop_unknown_groups, encode
from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.odd_rows import shown_here
from fedminmax.data.tables.read_file import name_without_ending
from fedminmax.data.tables.sources import format_of_file, read_source
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.records import Measured
from fedminmax.metrics.sums import empty_sums, metric_names, score_table, sum_scores
from fedminmax.runs.assemble import measured
from fedminmax.runs.folder import CONFIG_FILE
from fedminmax.training.simulation import Simulation


def measure(scored: Sequence[tuple[nn.Module, Examples]], saved: SavedModel) -> Measured:
    """Measure each part's model on its rows; groups and targets are those of the saved model."""
    encoding = saved.encoding
    sums = empty_sums(len(encoding.groups), 2 * len(metric_names(encoding)))
    for model, rows in scored:
        sums += sum_scores(score_table(model, rows, encoding), rows.group, len(encoding.groups))
    return measured(sums, encoding, saved.groups, saved.small_group_numbers)


def measure_personal(
    common: SavedModel,
    tables: FederatedTables,
    federation: Simulation,
    kept: Tensor,
) -> tuple[Measured, list[str]]:
    """Return metrics by group over all sites' test rows, and notes about them.

    ``kept`` has a row of parameters for each site; ``common`` is the shared model.
    """
    models = {
        site: federation.model(parameters).cpu()
        for site, parameters in zip(tables.sites, kept, strict=True)
    }
    scored = [(models[part.owner], part.examples) for part in tables.test if part.owner in models]
    others = [part.owner for part in tables.test if part.owner not in models]
    notes = []
    if others:
        notes.append(
            f"test rows of {quoted(others)} belong to no site: personal models are not measured "
            "on them"
        )
    return measure(scored, common), notes


@dataclass(frozen=True)
class MeasuredFiles:
    """Metrics by group, the skipped rows of unknown groups, and warnings."""

    test: Measured
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]


def measure_files(folder: Path, files: Sequence[Path], changes: FormatChanges) -> MeasuredFiles:
    """Return metrics by group over all rows of these files whose group training saw.

    Rows of other groups are skipped, counted and named: they belong to no group risk.
    """
    saved = load_model(folder)
    config = read_config(folder / CONFIG_FILE).for_measuring
    formats = [format_of_file(path, config, changes) for path in files]
    read = [
        read_source(Source(path, name_without_ending(path), own), config)
        for path, (own, _) in zip(files, formats, strict=True)
    ]
    warnings = [
        *(warning for _, chosen in formats for warning in chosen),
        *shown_here(found for source in read for found in source.odd),
    ]
    skipped: Counter[str] = Counter()
    examples = []
    for part in (part for source in read for part in source.parts):
        if part.left_out:
            without = counted(part.left_out, "row is", "rows are")
            warnings.append(
                f"{part.source}: {without} skipped, as in training: no protected value, or one "
                "that is not listed"
            )
        rows, unknown = drop_unknown_groups(part.rows, saved.encoding)
        warnings.extend(distance_warnings(rows.features, saved.encoding, part.source))
        examples.append(encode(rows, saved.encoding, part.source))
        skipped.update(unknown)
        if unknown:
            warnings.append(_skipped_text(part.source, unknown))
    if skipped and not any(map(len, examples)):
        raise InputError(
            f"no row is of a group that training saw ({quoted(saved.groups)}); the groups are "
            f"{quoted(list(skipped))}: give rows of the trained groups"
        )
    test = measure([(saved.model, rows) for rows in examples], saved)
    return MeasuredFiles(test, dict(skipped), tuple(warnings))


def _skipped_text(source: str, unknown: Mapping[str, int]) -> str:
    names = quoted([f"{name} ({rows:,})" for name, rows in unknown.items()])
    return (
        f"{source}: {counted(sum(unknown.values()), 'row is', 'rows are')} skipped, because "
        f"training had no row of such groups: {names}"
    )
