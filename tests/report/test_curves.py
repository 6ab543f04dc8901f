"""Curves over rounds: a group looks the same everywhere; the loss and the round are named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.findings.text import NOTHING
from fedminmax.report.curves import Curves, curves_of, panels_of, rounds_figure
from fedminmax.report.page import build_report, render_report
from fedminmax.report.read_run import read_run
from fedminmax.report.style import inline_svg
from fedminmax.training.round_record import RoundRecord
from tests.runs.run_folders import write_run

GROUPS = tuple(f"group {number}" for number in range(12))
# The largest groups come last.
ROWS = tuple(range(100, 1300, 100))


def curves(risks: list[float], *, keeps_styles: bool) -> Curves:
    last = RoundRecord(
        1,
        0.1,
        risks=tuple(risks),
        weights=(),
        weights_over="nothing",
        participants=(0,),
        gradient_evaluations=1,
    )
    return Curves(
        "a",
        [last],
        groups=GROUPS,
        group_rows=ROWS,
        sites=("north",),
        risk="risk",
        decimals=3,
        keeps_styles=keeps_styles,
    )


def looks(run: Curves) -> dict[str, int]:
    panel = panels_of(run)[0]
    names = [panel.names[group] for group in panel.named]
    return dict(zip(names, panel.styles, strict=True))


def test_two_models_on_one_page_show_the_same_groups_in_the_same_styles() -> None:
    rising = [0.1 * number for number in range(12)]
    live = [looks(curves(risks, keeps_styles=True)) for risks in (rising, rising[::-1])]
    assert live[0] == live[1]
    assert list(live[0]) == list(GROUPS[:3:-1])


def test_a_large_group_keeps_its_style_where_others_are_named() -> None:
    rising = [0.1 * number for number in range(12)]
    one, other = (looks(curves(risks, keeps_styles=False)) for risks in (rising, rising[::-1]))
    both = {name for name in one if name in other and GROUPS.index(name) >= 4}
    assert len(both) == 4
    assert all(one[name] == other[name] for name in both)
    for own in (one, other):
        assert sorted(own.values()) == list(range(8))


def test_without_row_counts_groups_keep_their_order() -> None:
    run = replace(curves([0.5] * 12, keeps_styles=True), group_rows=())
    assert list(looks(run)) == list(GROUPS[:8])


def validated_run(folder: Path, iterate: str) -> Path:
    """A run whose validation risks fall up to round 40 and rise from there."""
    risks = {"risk": 0.32, "standard_error": 0.02, "group": "women"}
    found = {
        "rows": [40, 60],
        "chosen": {"round": 40, **risks},
        "last": {"round": 100, **risks, "risk": 0.5},
    }
    run = write_run(folder, groups=("women", "men"), validation=found, iterate=iterate)
    for own in (run, run / "baseline"):
        lines = [json.loads(line) for line in (own / "rounds.jsonl").read_text().splitlines()]
        for line in lines:
            line["validation_risks"] = [0.32 + abs(line["round"] - 41) / 400, None]
        (own / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.mark.parametrize(("iterate", "verb"), [("best", "chose"), ("last", "would have chosen")])
def test_validation_risks_are_drawn_and_the_chosen_round_is_marked(
    iterate: str, verb: str, tmp_path: Path
) -> None:
    figure = rounds_figure(curves_of(read_run(validated_run(tmp_path / "run", iterate))), "rounds")
    for text in (figure.description, figure.caption):
        assert f"round 40, which validation records {verb}" in text
        assert "0.32 \N{PLUS-MINUS SIGN} 0.02 (women)" in text
    _, validation, _ = figure.tables
    assert validation.lines[0] == ("1", "0.420", NOTHING)
    assert ">model after round 40<" in inline_svg(figure)


@pytest.mark.parametrize(
    ("loss", "name"), [("cross_entropy", "cross-entropy"), ("brier", "Brier score")]
)
def test_the_curve_names_the_loss_that_it_shows(loss: str, name: str, tmp_path: Path) -> None:
    model = {"kind": "logistic", "hidden": [], "members": 1}
    run = read_run(write_run(tmp_path / "run", model=model, loss=loss))
    assert name in rounds_figure(curves_of(run), "x").caption
    page = render_report(build_report([run]), "1.0")
    assert ("which training minimises" in page) == (loss == "cross_entropy")
