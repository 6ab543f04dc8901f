"""What the adviser says of a census, and after a run: could holders reach it, what did it cost?"""

from collections.abc import Sequence

import torch

from fedminmax.core.counted import counted
from fedminmax.core.holder_mixes import SAME
from fedminmax.core.messages import Census
from fedminmax.report.advice import Advice, advise, nearest_to_weights
from fedminmax.report.advice_figure import RunWeights, mixes_figure
from fedminmax.report.advice_words import percent, size_words
from fedminmax.report.html_figure import ReportFigure
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_words import listed
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import CensusFile, ReachOfRun, Results

# Weights that are nearer to a reachable mix lead to nearly the same model.
NEAR = 0.01
MAX_NAMED = 4


def advise_census(file: CensusFile, loss: str = "brier") -> Advice:
    """Return the advice that needs no model."""
    return advise(
        Census(torch.tensor(file.train)),
        group_names=file.groups,
        holder_names=file.holders,
        test_rows=test_rows_of(file),
        loss=loss,
    )


def test_rows_of(file: CensusFile) -> Sequence[int] | None:
    """Return the test rows of each group; None if there are none at all."""
    lines = [*file.test, *file.other_tests.values()]
    rows = [sum(column) for column in zip(*lines, strict=True)]
    return rows if any(rows) else None


def mixes_of_run(run: Run, name: str) -> ReportFigure:
    """Describe the figure of a trained run's holders, with its final weights if it has some."""
    results, census = run.chosen.results, run.census
    advice = advise_census(census, results.loss)
    if results.reach is None:
        return mixes_figure(advice, name)
    return mixes_figure(advice, name, RunWeights(results.method.name, results.reach.weights))


def reach_of_run(rounds: Sequence[RoundRecord], census: CensusFile) -> ReachOfRun | None:
    """Return where the final weights lie; None for a run without weights over groups."""
    if not rounds or rounds[-1].weights_over != "groups":
        return None
    weights = rounds[-1].weights
    found = nearest_to_weights(census.train, weights)
    return ReachOfRun(weights=weights, distance=found.distance)


def after_words(results: Results) -> list[str]:
    """Say what is known after the run; nothing for runs of earlier versions."""
    return [*_reach_words(results), *_cost_words(results)]


def _reach_words(results: Results) -> list[str]:
    reach = results.reach
    if reach is None:
        return []
    heaviest = sorted(zip(reach.weights, results.groups, strict=True), reverse=True)[:MAX_NAMED]
    shown = listed([f"{percent(weight)} on “{name}”" for weight, name in heaviest if weight])
    final = f"the groups' final weights ({shown})"
    if reach.distance <= SAME:
        return [f"A method that is minimax over holders could have reached {final}, too."]
    if reach.distance <= NEAR:
        return [f"A method that is minimax over holders could nearly have reached {final}."]
    words = (
        f"A method that is minimax over holders could not have reached {final}: the nearest that "
        f"holders' mixes make are {reach.distance:.2f} away, on a scale from 0 to 1.41."
    )
    return [words]


def _cost_words(results: Results) -> list[str]:
    cost = results.cost
    if cost is None:
        return []
    rounds = results.method.rounds
    words = f"{results.method.name} took {counted(rounds, 'round')}"
    if cost.usual_rounds is not None:
        low, high = cost.usual_rounds
        words += f"; the estimate of what it needs was {low:,} to {high:,}"
    total = size_words(rounds * results.method.participation * cost.bytes_up)
    each = f"{size_words(cost.bytes_up)} up and {size_words(cost.bytes_down)} down per round"
    if cost.counted_up is None:
        return [f"{words}. Over a network a holder's messages are {each}, {total} up in all."]
    up, down = size_words(cost.counted_up), size_words(cost.counted_down or 0)
    return [
        f"{words}. A site's messages had {up} up and {down} down per round; expected were {each}."
    ]
