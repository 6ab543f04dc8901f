"""The story in one sentence: who was worst off, what it gained, who paid, how sure that is."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedminmax.report.bars import risk_by_group_figure, risk_table
from fedminmax.report.page import build_report, render_report
from fedminmax.report.read_run import read_run, read_runs
from fedminmax.report.story import comparison, facts, story
from tests.runs.run_folders import CONVERGED, FALLING, write_run

START = "Under FedAvg, “women” was worst off, with a Brier risk of 0.400 on 150 test rows; "


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (
            (0.30, 0.24),
            (
                "FedMinMax reduced it to 0.300, a gain of 0.100 (90% interval 0.058 "
                "to 0.142), more than noise; “men” paid: its risk rose by 0.040 (0.026 to 0.054)."
            ),
        ),
        (
            (0.30, 0.201),
            (
                "FedMinMax reduced it to 0.300, a gain of 0.100 (90% interval 0.058 "
                "to 0.142), more than noise; no other group's risk rose by more than noise."
            ),
        ),
        (
            (0.37, 0.19),
            (
                "with FedMinMax it has 0.370, and the difference of -0.030 (90% interval "
                "-0.072 to 0.012) is within the noise of that many rows; no other group's risk "
                "rose."
            ),
        ),
        (
            (0.50, 0.20),
            (
                "FedMinMax raised it to 0.500, a loss of 0.100 (90% interval 0.058 to 0.142), "
                "more than noise; no other group's risk rose."
            ),
        ),
        (
            (0.20, 0.30),
            (
                "FedMinMax reduced it to 0.200, a gain of 0.200 (90% interval 0.158 "
                "to 0.242), more than noise; “men” paid: its risk rose by 0.100 (0.086 to 0.114); "
                "“men” is now worst off, with 0.300."
            ),
        ),
        (
            (0.20, 0.45),
            (
                "FedMinMax reduced it to 0.200, a gain of 0.200 (90% interval 0.158 "
                "to 0.242), more than noise; “men” paid: its risk rose by 0.250 (0.236 to 0.264); "
                "but now “men” is worst off, with 0.450, more than “women” had before."
            ),
        ),
    ],
)
def test_every_ending(after: Sequence[float], expected: str, tmp_path: Path) -> None:
    told = story(read_run(write_run(tmp_path / "run", after=after)))
    assert told.replace("\N{MINUS SIGN}", "-") == START + expected


@pytest.mark.parametrize(
    ("chosen", "baseline", "because"),
    [
        (CONVERGED, FALLING, "FedAvg has not converged"),
        (FALLING, CONVERGED, "FedMinMax has not converged"),
        (FALLING, FALLING, "FedMinMax has not converged and FedAvg has not converged"),
        (CONVERGED, None, "FedAvg is not known to have converged"),
    ],
)
@pytest.mark.parametrize("after", [(0.30, 0.24), (0.50, 0.10)])
def test_what_has_not_converged_is_no_gain_and_no_loss(
    chosen: object, baseline: object, because: str, after: Sequence[float], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", after=after, convergence=chosen)
    path = run / "baseline" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"convergence": baseline}))
    told = story(read_run(run)).replace("\N{MINUS SIGN}", "-")
    size, ends = ("-0.100", "-0.142 to -0.058") if after[0] < 0.4 else ("0.100", "0.058 to 0.142")
    assert told == START + (
        f"with FedMinMax it has {after[0]:.3f}, a difference of {size} (90% interval {ends}), "
        f"neither a gain nor a loss yet, because {because}."
    )


def test_several_who_paid(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        before=(0.4, 0.2, 0.2),
        after=(0.3, 0.25, 0.22),
        halves=(0.01, 0.01, 0.01),
        rows=(60, 60, 60),
        groups=("a", "b", "c"),
        census=((1, 2, 3), (4, 5, 6)),
    )
    assert (
        "“b” paid most: its risk rose by 0.050 (0.036 to 0.064), and 1 more group also paid"
        in story(read_run(run))
    )


def test_without_a_baseline(tmp_path: Path) -> None:
    told = story(read_run(write_run(tmp_path / "run", before=None)))
    assert told == (
        "FedMinMax leaves “women” worst off, with a Brier risk of 0.300 (90% interval 0.270 "
        "to 0.330) on 150 test rows; this run has no baseline, so it is unknown which groups "
        "gained and which paid."
    )


def test_a_group_without_test_rows_is_never_worst_off(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", before=(None, 0.2), after=(None, 0.1), rows=(0, 900))
    assert story(read_run(run)).startswith("Under FedAvg, “men” was worst off")


def test_groups_of_few_rows_are_in_no_verdict(tmp_path: Path) -> None:
    """Seven women changed most by far, and would be called sure, worst off and all of the gap."""
    run = write_run(
        tmp_path / "run",
        before=(1.2, 0.4, 0.3),
        after=(0.1, 0.35, 0.28),
        halves=(0.001, 0.01, 0.01),
        rows=(7, 150, 900),
        groups=("women", "men", "others"),
        census=((1, 2, 3), (4, 5, 6)),
    )
    found = read_run(run)
    told = story(found)
    assert told.startswith("Under FedAvg, “men” was worst off")
    assert "women" not in told
    assert [(fact.before, fact.after) for fact in facts(found)][::2] == [
        ("0.400", "0.350"),
        ("0.100", "0.070"),
    ]
    table = risk_table(found)
    assert table.lines[-1][0] == "women"
    assert table.lines[-1][-1] == "too few rows to say"
    assert (
        "1 group with fewer than 50 test rows, or too few training rows: only at the end of the"
        in risk_by_group_figure(found, "bars").caption
    )


def test_where_all_groups_have_few_rows_nothing_is_said(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, rows=(7, 49)) for name in "ab"]
    runs = read_runs(folders)
    assert story(runs[0]).startswith("Fewer than two groups have 50 test rows or more")
    assert [fact.after for fact in facts(runs[0])][::2] == ["\N{EN DASH}"] * 2
    assert "too few rows to say" in comparison(runs)
    report = build_report(runs)
    assert report.trade_off is None
    assert "Trade-off" not in render_report(report, "1.0")


def test_the_facts_are_before_and_after(tmp_path: Path) -> None:
    found = facts(read_run(write_run(tmp_path / "run")))
    assert [(fact.before, fact.after) for fact in found] == [
        ("0.400", "0.300"),
        (f"{(150 * 0.40 + 900 * 0.20) / 1050:.3f}", f"{(150 * 0.30 + 900 * 0.24) / 1050:.3f}"),
        ("0.200", "0.060"),
    ]


def test_squared_errors_have_three_figures_of_their_own_size(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        before=(41_000.0, 20_000.0),
        after=(30_000.0, 21_000.0),
        halves=(900.0, 300.0),
        task="regression",
    )
    told = story(read_run(run))
    assert "with a squared error of 41,000 on" in told
    assert "a gain of 11,000 (90% interval 9,700 to 12,300)" in told


@pytest.mark.parametrize(("other", "sure"), [(0.31, "a difference within noise"), (0.5, "more")])
def test_of_several_runs_the_best_is_named_with_care(
    other: float, sure: str, tmp_path: Path
) -> None:
    folders = [
        write_run(tmp_path / "a", name="AFL", after=(other, 0.2)),
        write_run(tmp_path / "b"),
    ]
    told = comparison(read_runs(folders))
    assert told.startswith("Of 2 runs and their baselines, FedMinMax has the lowest worst-group")
    assert sure in told
    assert "converged" not in told


def test_of_several_runs_those_that_have_not_converged_are_named(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", name="AFL", after=(0.5, 0.2), convergence=FALLING),
        write_run(tmp_path / "b"),
    ]
    told = comparison(read_runs(folders))
    assert told.endswith("because not all have converged: FedAvg (baseline of AFL) and AFL.")
