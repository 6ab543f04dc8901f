"""The frontier of a run: write its models and results, read them, choose one of them.

The run folder of a frontier is that of its recommended model, with the plain model as baseline.
Beside them are frontier.json and each point's model.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog, write_copy, write_json, write_text
from fedminmax.data.tables.census import FORMAT, CensusFile, first_error
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, load_model, save_model
from fedminmax.findings.card import render_card
from fedminmax.findings.frontier import FrontierFile, PointOfFrontier
from fedminmax.findings.records import Results, record_as_json
from fedminmax.methods.card import Weights
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.shared.frontier_server import FrontierPoint
from fedminmax.metrics.sums import ScoreSums
from fedminmax.runs.assemble import FinishedRun, FoundFrontier, assemble, write_run
from fedminmax.runs.folder import (
    ADVICE,
    BASELINE_FOLDER,
    CARD_FILE,
    CENSUS_FILE,
    CONFIG_FILE,
    RESULTS_FILE,
    write_results,
)
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord

FRONTIER_FILE = "frontier.json"
MODELS_FOLDER = "frontier"
PLAIN_METHOD = "fedavg-fast"


def write_frontier(
    run: FinishedRun,
    frontier: FoundFrontier,
    sums: ScoreSums,
    config: TableConfig,
    census: CensusFile,
    *,
    unit: float,
    **further: Any,
) -> list[Results]:
    """Write all points, the recommended one as the run's answer and the plain one as baseline.

    Args:
        run: the run that found them; its answer is the recommended point.
        frontier: the points and their models.
        sums: of all points' scores on test rows, side by side.
        config: of the run.
        census: rows by site and group.
        unit: converts risks to the target's unit, squared.
        further: what ``assemble`` takes besides.
    """
    folder, found = run.table_run.folder, frontier.found
    points = [
        _run_of_point(run, *own, unit) for own in zip(found.points, frontier.saved, strict=True)
    ]
    plain = _as_baseline(points[0], found.points[0].round)
    pairs = [
        assemble([own, plain], sums.of_models((number, 0), len(points)), config, census, **further)
        for number, own in enumerate(points)
    ]
    results = [pairs[0][1], *(own for own, _ in pairs[1:])]
    (folder / MODELS_FOLDER).mkdir(parents=True, exist_ok=True)
    for number, own in enumerate(points):
        save_model(model_of_point(folder, number + 1), own.saved)
    file = FrontierFile(
        format=FORMAT,
        rounds=run.rounds[-1].round,
        recommended=found.recommended + 1,
        points=tuple(
            PointOfFrontier(
                number=number + 1,
                keep_share=point.keep_share,
                round=point.round,
                mean=point.mean * unit,
                worst=point.worst * unit,
                risks=tuple(risk * unit for risk in point.risks),
                weights=point.weights,
                proof=point.certificate.in_units(unit),
                results=results[number],
            )
            for number, point in enumerate(found.points)
        ),
    )
    write_json(folder / FRONTIER_FILE, record_as_json(file))
    log = plain.table_run.folder / ROUNDS_FILE
    log.unlink(missing_ok=True)
    for record in plain.rounds:
        JsonLog(log, RoundRecord).add(record)
    answer = pairs[found.recommended]
    write_copy(folder / CONFIG_FILE, plain.table_run.folder / CONFIG_FILE)
    write_run(plain, results[0], config, census)
    write_run(points[found.recommended], answer[0], config, census)
    return answer


def _run_of_point(
    run: FinishedRun, point: FrontierPoint, saved: SavedModel, unit: float
) -> FinishedRun:
    """Return a point as a run of its own, with what it would have logged at its end."""
    method: Any = run.table_run.method
    method = replace(method, keep_share=point.keep_share, tolerance=0.0)
    certificate = point.certificate.in_units(unit)
    last = replace(
        run.rounds[-1],
        risks=tuple(risk * unit - certificate.penalty for risk in point.risks),
        weights=point.weights,
        remaining=certificate.gap,
        certificate=certificate,
    )
    return replace(
        run,
        table_run=replace(run.table_run, method=method),
        rounds=[*run.rounds[:-1], last],
        saved=saved,
        certificate=certificate,
        frontier=None,
    )


def _as_baseline(run: FinishedRun, rounds: int) -> FinishedRun:
    """Return the run of the plain model, which took this many rounds, as that of a baseline."""
    card, own = CARDS[PLAIN_METHOD], run.table_run
    logged = [*run.rounds[: rounds - 1], replace(run.rounds[-1], round=rounds)]
    return replace(
        run,
        table_run=replace(
            own, folder=own.folder / BASELINE_FOLDER, card=card, method=card.build({})
        ),
        rounds=[
            replace(record, weights=(), weights_over=Weights.NONE.value, certificate=None)
            for record in logged
        ],
        certificate=None,
    )


def model_of_point(folder: Path, number: int) -> Path:
    """Return where a frontier's run folder has the model of a point, by its number from 1."""
    return folder / MODELS_FOLDER / f"point-{number}.safetensors"


def has_frontier(folder: Path) -> bool:
    """Whether this is the run folder of a finished frontier."""
    return (folder / FRONTIER_FILE).is_file()


def read_frontier(folder: Path) -> FrontierFile:
    """Read the frontier of a run folder."""
    path = folder / FRONTIER_FILE
    if not path.is_file():
        raise InputError(f"{folder} has no {FRONTIER_FILE}; give a folder of 'fedminmax frontier'")
    try:
        return FrontierFile.model_validate(from_json(path.read_bytes()))
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({first_error(error)}); {ADVICE}") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error


def check_choice(folder: Path, number: int, points: int) -> None:
    """Refuse a number that is no point of so many, or the plain model."""
    if not 1 < number <= points:
        raise InputError(
            f"--choose {number}: choose from 2 to {points}; 1 is the plain model, which "
            f"{folder / BASELINE_FOLDER} has"
        )


def choose_point(folder: Path, number: int) -> Path:
    """Write the run folder of one of a frontier's models, the plain model as baseline; return it.

    Args:
        folder: the run folder of a frontier, where the new one will be.
        number: the model's number, from 1.
    """
    frontier = read_frontier(folder)
    check_choice(folder, number, len(frontier.points))
    target = folder / f"point-{number}"
    if target.exists() and any(target.iterdir()):
        raise InputError(f"{target} exists already: use it, or remove it first")
    results, saved = frontier.points[number - 1].results, load_model(model_of_point(folder, number))
    config = read_config(folder / CONFIG_FILE)
    census = CensusFile.model_validate(from_json((folder / CENSUS_FILE).read_bytes()))
    card = CARDS[results.method.key]
    for name in (CONFIG_FILE, CENSUS_FILE, ROUNDS_FILE):
        for part in (Path(name), Path(BASELINE_FOLDER, name)):
            if (folder / part).exists():
                write_copy(folder / part, target / part)
    for name in (MODEL_FILE, CARD_FILE, RESULTS_FILE):
        write_copy(folder / BASELINE_FOLDER / name, target / BASELINE_FOLDER / name)
    save_model(target / MODEL_FILE, saved)
    text = render_card(results, saved.encoding, census=census, card=card, section=config.report)
    write_text(target / CARD_FILE, text)
    write_results(target, results)
    return target
