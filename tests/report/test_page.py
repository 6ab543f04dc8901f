"""The page: whole, self-contained, safe with any name, and the same every time."""

import itertools
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from fedminmax.report.details import Detail
from fedminmax.report.frontier import comparison
from fedminmax.report.page import (
    GENERATOR,
    NOT_STATED,
    Report,
    about,
    build_report,
    is_report,
    render_report,
)
from fedminmax.report.read_run import read_run, read_runs
from fedminmax.report.settings import csv_of, without_folders
from fedminmax.report.style import distinct, export_figures, inline_svg
from tests.runs.run_folders import FALLING, metric, write_run

HOSTILE = ('<script>alert("1")</script>', "a & b 'c' $^$", "_日本 --> ]]>", "x" * 200)


class Page(HTMLParser):
    """All tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())

    def values(self, name: str) -> list[str]:
        return [own[name] or "" for _, own in self.tags if name in own]


def hostile_report(folder: Path) -> Report:
    """A report in which every name that a user can choose is as bad as it gets."""
    run = write_run(
        folder / "run",
        before=(0.4, 0.2, None, 0.3),
        after=(0.3, 0.25, None, 0.22),
        halves=(0.01,) * 4,
        rows=(60, 70, 0, 80),
        groups=HOSTILE,
        site_names=HOSTILE[:2],
        census=((1, 2, 3, 4), (5, 6, 0, 8)),
        warnings=[HOSTILE[0]],
        notes=[HOSTILE[1]],
    )
    (run / "config.toml").write_text(HOSTILE[0])
    return build_report([read_run(run)])


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(render_report(hostile_report(tmp_path_factory.mktemp("hostile")), "1.0"))


def test_hostile_names_stay_text(hostile_page: Page) -> None:
    page = hostile_page
    assert not {"script", "iframe", "object", "img", "i"} & {tag for tag, _ in page.tags}
    assert not [name for _, own in page.tags for name in own if name.startswith("on")]
    for name in HOSTILE:
        assert name in page.words
    # In figures too, as far as they have room; what is missing is cut off, not changed.
    assert HOSTILE[1] in [word.strip() for word in page.words]
    assert page.words.count(HOSTILE[0]) > 5


def test_nothing_is_fetched(hostile_page: Page) -> None:
    page = hostile_page
    assert not page.values("src")
    links = [*page.values("href"), *page.values("xlink:href")]
    assert all(
        link.startswith(("#", "data:text/csv;", "data:application/toml;"))
        for link in links
        if link != "data:,"
    )
    policy = next(own["content"] for _, own in page.tags if "http-equiv" in own)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_identifiers_are_unique_and_every_link_and_label_finds_one(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", name="AFL")]
    text = render_report(build_report(read_runs(runs)), "1.0")
    page = Page(text)
    identifiers = Counter(page.values("id"))
    assert max(identifiers.values()) == 1
    wanted = {link[1:] for link in page.values("href") if link.startswith("#")}
    wanted |= {link[1:] for link in page.values("xlink:href")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", text))
    wanted |= set(page.values("aria-labelledby")) | set(page.values("aria-describedby"))
    assert wanted <= set(identifiers)


def test_headings_go_down_one_by_one(hostile_page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in hostile_page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(later - level <= 1 for level, later in itertools.pairwise(levels))


def detail(report: Report, name: str) -> Detail:
    return next(one for one in report.parts[0].details if one.name == name)


def test_every_figure_has_name_description_caption_and_numbers(tmp_path: Path) -> None:
    report = build_report([read_run(write_run(tmp_path / "run"))])
    assert len(report.figures) == 2
    for figure in report.figures:
        assert figure.title
        assert figure.description
        assert figure.caption
        assert all(
            len(line) == len(table.headers) for table in figure.tables for line in table.lines
        )


def test_the_first_screen_has_a_line_for_each_group_and_everyone(tmp_path: Path) -> None:
    """Misclassified are half the risk; both ends are independent here, of half widths 15 and 5."""
    report = build_report([read_run(write_run(tmp_path / "run"))])
    forest = report.parts[0].forest
    assert forest is not None
    women, men, everyone = forest.lines
    half = 2**0.5 * 30
    assert (women.name, women.tested, women.before, women.after) == ("women", "150", "200", "150")
    assert women.ends == pytest.approx((-50 - half, -50, -50 + half))
    assert (women.tone, men.tone, everyone.tone) == ("better", "worse", "same")
    assert forest.low < women.ends[0] < everyone.ends[2] < forest.high
    zero = next(float(forest.place(tick)[:-1]) for tick, text in forest.ticks if text == "0")
    places = [float(forest.place(line.ends[1])[:-1]) for line in forest.lines]
    assert places[0] < zero < places[1]


def test_sizes_are_told_by_group_and_by_site_but_not_by_both(tmp_path: Path) -> None:
    report = build_report([read_run(write_run(tmp_path / "run"))])
    groups, sites = detail(report, "sizes").tables
    assert groups.lines == (
        ("women", "60", "60", "1 of 2"),
        ("men", "740", "740", "2 of 2"),
        ("all records", "800", "800", "2"),
    )
    assert sites.lines == (("north", "300", "300"), ("south", "500", "500"))


def test_nothing_identifies_anyone(tmp_path: Path) -> None:
    """Seven tested and nine trained on, in a folder with a name, from files in a folder."""
    run = write_run(
        tmp_path / "ann" / "run",
        groups=("women", "men", "few"),
        before=(0.4, 0.2, 0.9),
        after=(0.3, 0.24, 0.1234),
        halves=(0.03, 0.01, 0.5),
        rows=(150, 900, 7),
        census=((60, 240, 4), (0, 500, 5)),
        warnings=["a.csv: 3 rows are copies of others"],
    )
    (run / "config.toml").write_text('[data]\ntarget = "ill"\nfile = "/home/ann/a.csv"\n')
    report = build_report([read_run(run)], appendix=True)
    page = Page(render_report(report, "1.0"))
    assert str(tmp_path) not in " ".join(page.words)
    assert "/home/ann" not in render_report(report, "1.0")
    assert not {"7", "9", "4", "5", "3"} & {word.strip() for word in page.words}
    assert "0.123" not in " ".join(page.words)
    csv = csv_of(report.parts[0].run)
    assert "few" not in csv
    assert "women,150,Brier score" in csv
    assert "men,,Brier score,0.24,0.23,0.25" in csv
    settings = report.parts[0].run.settings
    assert without_folders(settings)["data"] == {"target": "ill", "file": "a.csv"}
    assert "907 test records together" in " ".join(page.words)


def test_settings_that_differ_are_there_and_all_in_the_appendix(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=41)
    (run / "config.toml").write_text(
        '[data]\ntarget = "ill"\nheld_out = 0.3\n\n[groups]\ncolumns = ["sex"]\nsmall = "merge"\n'
        'minimum_size = 30\n\n[method]\nname = "fedminmax-fast"\n'
    )
    report = build_report([read_run(run)], appendix=True)
    (changed,) = detail(report, "settings").tables
    assert changed.lines == (("data.held_out", "0.3"), ("groups.small", "merge"))
    page = Page(render_report(report, "1.0"))
    for word in ("option learning_rate", "0.1", "8, 4", "41", "12,345", "1 min 15 s"):
        assert word in page.words
    plain = Page(render_report(build_report([read_run(run)]), "1.0"))
    assert "option learning_rate" not in plain.words


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    text = render_report(build_report([run]), "1.0")
    assert text == render_report(build_report([run]), "1.0")
    assert is_report(text)
    assert not is_report("<html></html>")


def test_a_shared_baseline_is_one_point(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", name="AFL", after=(0.35, 0.2))]
    other = write_run(tmp_path / "c", name="TERM", before=(0.45, 0.2), rows=(150, 901))
    report = build_report(read_runs([*runs, other]))
    assert report.trade_off is not None
    assert [line[0] for line in report.trade_off.tables[0].lines] == [
        "FedAvg (baseline of FedMinMax)",
        "FedMinMax",
        "AFL",
        "FedAvg (baseline of TERM)",
        "TERM",
    ]
    (warning,) = report.warnings
    assert warning.startswith("TERM was measured on other groups or test records than FedMinMax")


@pytest.mark.parametrize("weights_over", ["groups", "sites", "nothing", "groups (parity)"])
def test_every_kind_of_weights(weights_over: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", weights_over=weights_over))
    (figure,) = detail(build_report([run]), "training").figures
    tables = 2 if weights_over in {"groups", "sites"} else 1
    assert len(figure.tables) == tables
    assert ("no weights" in figure.caption) == (tables == 1)


def test_many_groups_are_drawn_in_part_and_listed_in_full(tmp_path: Path) -> None:
    many = 33
    run = write_run(
        tmp_path / "run",
        before=tuple(0.2 + number / 1000 for number in range(many)),
        after=(0.2,) * many,
        halves=(0.01,) * many,
        rows=(50,) * many,
        groups=tuple(f"group {number}" for number in range(many)),
        census=((1,) * many,) * 2,
    )
    report = build_report([read_run(run)])
    change, curves = report.figures
    forest = report.parts[0].forest
    assert forest is not None
    assert len(forest.lines) == 31
    assert "3 more groups are in the CSV file" in forest.foot
    assert len(change.tables[0].lines) == many + 1
    assert ">group 32</text>" in inline_svg(change)
    assert "the others are grey" in curves.caption


def test_large_errors_are_short_on_axes_and_in_tables(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        before=(4.1e8, 2.0e8),
        after=(3.0e8, 2.1234e8),
        halves=(1e7, 1e7),
        task="regression",
    )
    report = build_report([read_run(run)])
    lines = detail(report, "measures").tables[0].lines
    assert "200,000,000 \N{RIGHTWARDS ARROW} 212,000,000" in lines[1]
    text = render_report(report, "1.0")
    assert "1e8" not in text


def test_figures_for_papers(tmp_path: Path) -> None:
    paths, lacks_glyphs = export_figures(
        hostile_report(tmp_path).figures, tmp_path / "figures", GENERATOR
    )
    assert lacks_glyphs
    assert len(paths) == 4
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 300
                assert len(set(image.convert("L").get_flattened_data())) > 10
        else:
            tree = ElementTree.fromstring(path.read_text())  # noqa: S314
            assert tree.tag.endswith("svg")
            assert "var(--" not in path.read_text()


def test_a_users_statements_are_on_the_first_screen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    stated = (
        '[groups]\ncolumns = ["sex"]\n[report]\ntitle = "Follow-up visits"\n'
        'intended_use = "Whom to call first."\nnot_for = "Insurance."\n'
    )
    (run / "config.toml").write_text(stated)
    shown = about(read_run(run))
    assert shown.title == "Follow-up visits"
    assert "2 groups by sex" in shown.facts
    assert (shown.intended_use, shown.not_for) == ("Whom to call first.", "Insurance.")


@pytest.mark.parametrize("text", ["<script>", "report = 3", "[report]\ntitle = 3", "groups = 1"])
def test_a_damaged_configuration_states_nothing(text: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "config.toml").write_text(text)
    assert about(read_run(run)).intended_use == NOT_STATED


def test_cut_names_can_be_told_apart() -> None:
    names = [
        f"everybody from the far {side} / {age}" for side in ("north", "south") for age in "ab"
    ]
    for width in (12, 17, 26):
        labels = distinct([*names, "x" * 90, "x" * 91], width)
        assert len(set(labels)) == 6
        assert max(map(len, labels)) <= width + 4


def test_no_table_of_measures_is_too_wide_for_a_screen(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run") / "results.json"
    content = json.loads(path.read_text())
    for name in ("overconfidence", "selection_rate", "false_positive_rate", "calibration"):
        rate = metric((0.1, 0.2), (0.05, 0.05), (150, 900), ("women", "men"))
        content["test"]["metrics"][name] = rate
    path.write_text(json.dumps(content))
    tables = detail(build_report([read_run(path.parent)]), "measures").tables
    assert all(len(table.headers) <= 8 for table in tables)
    shown = [header for table in tables for header in table.headers]
    assert "false positive rate of “yes”" in shown
    assert "calibration of “yes”" in shown


@pytest.mark.parametrize(("other", "words"), [(0.31, "not clearly different"), (0.5, "clearly")])
def test_of_several_runs_the_best_is_named_with_care(
    other: float, words: str, tmp_path: Path
) -> None:
    folders = [
        write_run(tmp_path / "a", name="AFL", after=(other, 0.2)),
        write_run(tmp_path / "b"),
    ]
    told = comparison(read_runs(folders))
    assert "FedMinMax has the lowest" in told
    assert words in told
    assert "converged" not in told


def test_runs_and_baselines_that_are_better_or_have_not_converged_are_named(
    tmp_path: Path,
) -> None:
    folders = [
        write_run(tmp_path / "a", name="AFL", after=(0.5, 0.2), convergence=FALLING),
        write_run(tmp_path / "b"),
    ]
    told = comparison(read_runs(folders))
    assert told.endswith("not all have converged: FedAvg (baseline of AFL) and AFL.")
    worse = {"after": (0.45, 0.2), "before": (0.30, 0.2)}
    folders = [write_run(tmp_path / name, **worse) for name in ("c", "d")]  # type: ignore[arg-type]
    assert "FedAvg (baseline of FedMinMax" in comparison(read_runs(folders))


def test_where_all_groups_have_few_records_there_is_no_trade_off(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / name, rows=(7, 49)) for name in "ab"])
    assert "too few records to say" in comparison(runs)
    report = build_report(runs)
    assert report.trade_off is None
    assert 'id="trade"' not in render_report(report, "1.0")
