"""results.json of a run on tables: how it was trained and what it scored."""

from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from fedminmax.config.sections import ReportSection
from fedminmax.core.convergence import Convergence
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.data.tables.census import FORMAT, CensusFile, first_error
from fedminmax.data.tables.encoding import Encoding
from fedminmax.exports.saved_model import SavedModel
from fedminmax.findings.card import render_card
from fedminmax.findings.records import Measured, MethodOfRun, ModelOfRun, Results, record_as_json
from fedminmax.methods.card import MethodCard
from fedminmax.runs.layout import CARD_FILE, RESULTS_FILE

ADVICE = "remove it, and run 'fedminmax train' again"


@dataclass(frozen=True)
class TrainingFacts:
    """How a run was trained: method and cost, whether it converged, and when it ended."""

    method: MethodOfRun
    seed: int
    _: KW_ONLY
    seconds: float
    gradient_evaluations: int
    convergence: Convergence | None
    finished: str


def today() -> str:
    """Return today's date in UTC, in ISO format."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class Remarks:
    """Notes and warnings about the rows of a run."""

    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def results_of(
    saved: SavedModel, facts: TrainingFacts, test: Measured, remarks: Remarks
) -> Results:
    """Put the results together."""
    return Results(
        format=FORMAT,
        method=facts.method,
        task="classification" if saved.classes else "regression",
        target=saved.encoding.schema.target.column,
        model=ModelOfRun(kind=saved.kind, hidden=saved.hidden, members=saved.members),
        loss=saved.loss,
        iterate=saved.iterate,
        classes=saved.classes,
        groups=saved.groups,
        small_groups=saved.encoding.small_group_names,
        seed=facts.seed,
        seconds=facts.seconds,
        finished=facts.finished,
        gradient_evaluations=facts.gradient_evaluations,
        convergence=facts.convergence,
        test=test,
        notes=remarks.notes,
        warnings=remarks.warnings,
    )


def write_results(folder: Path, results: Results) -> None:
    """Write a finished run's results."""
    write_json(folder / RESULTS_FILE, record_as_json(results))


def write_card(
    folder: Path,
    results: Results,
    encoding: Encoding,
    *,
    census: CensusFile,
    card: MethodCard,
    section: ReportSection,
) -> None:
    """Write the model card of a finished run."""
    text = render_card(results, encoding, census=census, card=card, section=section)
    write_text(folder / CARD_FILE, text)


def read_results(folder: Path) -> Results | None:
    """Read a finished run's results; None if it is not finished."""
    path = folder / RESULTS_FILE
    if not path.exists():
        return None
    try:
        content = from_json(path.read_bytes())
        found = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error
    if found != FORMAT:
        raise InputError(
            f"{path} has format {found}, this version reads format {FORMAT}; use the version of "
            "fedminmax that wrote it, or train again"
        )
    try:
        return Results.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({first_error(error)}); {ADVICE}") from error


def finished_results(folder: Path) -> Results:
    """Read the results of a run that must be finished."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a run folder of 'fedminmax train'")
    results = read_results(folder)
    if results is None:
        raise InputError(f"{folder} has no finished run; run 'fedminmax train' again to continue")
    return results
