"""Measure a trained model on further files, as it was measured on its own test rows."""

from collections.abc import Sequence
from pathlib import Path

from fedminmax.data.tables.config import Source, read_config
from fedminmax.data.tables.encode import encode
from fedminmax.data.tables.sources import read_source
from fedminmax.report.model_file import load_model
from fedminmax.report.run_folder_records import Measured
from fedminmax.report.table_metrics import measure


def measure_files(folder: Path, files: Sequence[Path]) -> tuple[Measured, list[str]]:
    """Return metrics by group over all rows of these files, and what to warn of."""
    saved = load_model(folder)
    config = read_config(folder / "config.toml")
    read = [read_source(Source(path, path.stem), config) for path in files]
    rows = [
        encode(part.rows, saved.encoding, part.source) for source in read for part in source.parts
    ]
    warnings = [warning for source in read for warning in source.warnings]
    return measure(saved, rows), warnings
