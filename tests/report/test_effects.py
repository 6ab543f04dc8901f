"""Figures of effects: what they leave out, how they are ordered, and pages that stay safe."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedminmax.data.tables.plain_fit import Departure
from fedminmax.exports.effects import Axis, Effect, ModelEffects, effects_of
from fedminmax.report.effect_drawings import MAX_BARS, bars_of, cell_names
from fedminmax.report.effects import (
    MAX_DRAWN,
    MAX_SHOWN,
    EffectsPart,
    design_effect,
    effects_part,
)
from fedminmax.report.page import build_report, render_report
from fedminmax.report.read_run import Run, read_run
from fedminmax.report.style import inline_svg
from tests.exports.saved_models import saved_additive_model
from tests.runs.run_folders import write_run

BAD = "<script>alert(1)</script>"


def effect_of(axis: Axis, values: list[float], counts: list[float]) -> Effect:
    errors = (tuple(0.1 for _ in values),)
    return Effect((axis,), (tuple(values),), errors=errors, counts=tuple(counts))


def with_effects(folder: Path, *effects: Effect) -> Run:
    run = read_run(write_run(folder / "run"))
    return replace(run, effects=ModelEffects(("yes",), (0.0,), effects))


@pytest.mark.parametrize("classes", [("no", "yes"), ("low", "mid", "high"), ()])
def test_every_kind_of_effect_is_drawn_without_images(
    tmp_path: Path, classes: tuple[str, ...]
) -> None:
    saved = saved_additive_model(classes)
    run = read_run(write_run(tmp_path / "run"))
    part = effects_part(replace(run, effects=effects_of(saved.model, saved.encoding)), "run")
    assert part is not None
    assert {figure.title for figure in part.shown} == {
        *("age", "ward", "since", "smoker", "age and ward", "since and smoker")
    }
    for figure in part.shown:
        for drawn in (inline_svg(figure), inline_svg(figure.narrow)):
            ElementTree.fromstring(drawn)  # noqa: S314 - our own
            assert "<image" not in drawn
        assert figure.tables[0].lines


def test_a_page_with_effects_has_unique_names_and_keeps_labels_as_text(tmp_path: Path) -> None:
    axis = Axis(BAD, labels=(BAD, "b", "other values"))
    number = Axis("dose", edges=(1.0, 2.0, 4.0), has_missing=True)
    run = with_effects(
        tmp_path,
        effect_of(axis, [0.5, -0.5, 0.0], [50, 50, 0]),
        effect_of(number, [0.1, 0.2, 0.3, 0.4, 0.9], [20, 30, 20, 20, 12]),
    )
    page = render_report(build_report([run]), "1.0")
    assert "<script" not in page
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert all(later - level <= 1 for level, later in pairwise(levels))
    assert "What does the model use?" in page


def test_the_most_important_come_first_and_few_are_open(tmp_path: Path) -> None:
    effects = [
        effect_of(Axis(f"c{size}", labels=("a", "b")), [size, -size], [40, 40])
        for size in range(1, 31)
    ]
    part = effects_part(with_effects(tmp_path, *effects), "run")
    assert part is not None
    assert [figure.title for figure in part.shown] == [f"c{30 - n}" for n in range(MAX_SHOWN)]
    assert len(part.others) == MAX_DRAWN - MAX_SHOWN
    assert [line[0] for line in part.importance.lines] == [f"c{30 - n}" for n in range(30)]
    assert part.importance.lines[0][1] == "30"


def test_no_line_is_about_fewer_than_ten_records(tmp_path: Path) -> None:
    """Bins with few records are told together, as their mean over records."""
    axis = Axis("gain", edges=(10.0, 20.0, 30.0, 40.0), has_missing=True)
    effect = effect_of(axis, [0.0, 1.0, 2.0, 3.0, 4.0, 9.0], [50, 6, 6, 6, 6, 0])
    part = effects_part(with_effects(tmp_path, effect), "run")
    assert part is not None
    lines = part.shown[0].tables[0].lines
    assert [line[0] for line in lines] == [
        *("below 10", "from 10, below 30", "from 30"),
    ]
    assert [line[1] for line in lines] == ["0", "1.5", "3.5"]


def test_rare_categories_are_one_bar() -> None:
    labels = tuple(f"town {number}" for number in range(30))
    counts = [100.0 - number for number in range(28)] + [9.0, 9.0]
    effect = effect_of(Axis("town", labels=labels), [float(n) for n in range(30)], counts)
    bars = bars_of(effect)
    assert len(bars) == MAX_BARS + 1
    assert [bar.label for bar in bars[:2]] == ["town 11", "town 10"]
    assert bars[-1].label == "18 others, mean"
    assert bars[-1].values[0] == pytest.approx(np.average(range(12, 30), weights=counts[12:]))


def test_coarse_cells_have_names() -> None:
    number = Axis("age", edges=(20.0, 30.0, 40.0), has_missing=True)
    assert cell_names(number, (0, 0, 1, 2, 2), None) == ["below 30", "from 30", "from 40, missing"]
    ward = Axis("ward", labels=("a", "b", "c", "other values"))
    counted = effect_of(ward, [0.0] * 4, [10, 30, 20, 0])
    assert cell_names(ward, (0, 0, 1, 1), counted) == ["b +1", "c +1"]


def test_the_design_effect_is_one_for_shares_and_n_over_its_records_for_one_group(
    tmp_path: Path,
) -> None:
    run = read_run(write_run(tmp_path / "run", name="FedMinMax"))
    records = np.array(run.census.train).sum(axis=0)
    shares = records / records.sum()

    def with_weights(weights: np.ndarray) -> Run:
        last = replace(run.chosen.rounds[-1], weights=tuple(weights.tolist()))
        return replace(run, chosen=replace(run.chosen, rounds=(last,)))

    assert design_effect(with_weights(shares)) == pytest.approx(1.0)
    alone = np.eye(len(records))[0]
    assert design_effect(with_weights(alone)) == pytest.approx(records.sum() / records[0])


def test_groups_that_differ_are_drawn_and_listed(tmp_path: Path) -> None:
    number = Axis("dose", edges=(1.0, 2.0, 4.0))
    ward = Axis("ward", labels=("a", "b", "other values"))
    run = with_effects(
        tmp_path,
        effect_of(number, [0.1, 0.2, 0.3, 0.4], [20, 30, 20, 20]),
        effect_of(ward, [0.5, -0.5, 0.0], [50, 50, 0]),
    )
    results = run.chosen.results

    def part_with(departures: tuple[Departure, ...] | None) -> EffectsPart:
        changed = replace(run.chosen, results=results.model_copy(update={"departures": departures}))
        part = effects_part(replace(run, chosen=changed), "run")
        assert part is not None
        return part

    assert "in every group" not in part_with(None).introduction
    assert "In no group" in part_with(()).introduction
    departures = (
        Departure("dose", BAD, ((0, 1), (2, 3)), (0.4, -0.2), (0.1, 0.1), (40, 50), 0.3),
        Departure("ward", "men", ((0,), (1, 2)), (0.2, -0.2), (0.1, 0.1), (40, 50), 0.2),
    )
    part = part_with(departures)
    assert "effect of “dose” and “ward” is clearly another one in some groups" in part.introduction
    by_title = {figure.title: figure for figure in part.shown}
    # The mean of 20 and 30 records at 0.1 and 0.2, and 0.4 more.
    assert by_title["dose"].tables[1].lines[0] == ("below 2", "0.56", "0.196")
    assert by_title["ward"].tables[1].lines[1][0] == "2 others"
    for figure in part.shown:
        for drawn in (inline_svg(figure), inline_svg(figure.narrow)):
            ElementTree.fromstring(drawn)  # noqa: S314 - our own
            assert "<script" not in drawn
