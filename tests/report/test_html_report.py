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

from fedminmax.report.curves import curves_of, rounds_figure
from fedminmax.report.page import Report, build_report, export_figures, is_report, render_report
from fedminmax.report.read_run import read_run, read_runs
from fedminmax.report.style import inline_svg
from fedminmax.report.text import NOTHING
from tests.runs.run_folders import write_run

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
    marks = (
        f"The vertical line marks the model after round 40, which validation rows {verb}: its "
        "validation risk is 0.32 \N{PLUS-MINUS SIGN} 0.02 (women)."
    )
    assert "risk by group on validation rows. Below: weight by group." in figure.description
    assert marks in figure.description
    assert marks in figure.caption
    _, validation, _ = figure.tables
    assert validation.lines[0] == ("1", "0.420", NOTHING)
    assert ">model after round 40<" in inline_svg(figure)


def test_hostile_names_stay_text(hostile_page: Page) -> None:
    page = hostile_page
    assert not {"script", "iframe", "object", "img", "b"} & {tag for tag, _ in page.tags}
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
    assert all(link.startswith("#") or link == "data:," for link in links)
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


def test_every_figure_has_name_description_caption_and_numbers(tmp_path: Path) -> None:
    report = build_report([read_run(write_run(tmp_path / "run"))])
    assert len(report.figures) == 5
    for figure in report.figures:
        assert figure.title
        assert figure.description
        assert figure.caption
        assert all(
            len(line) == len(table.headers) for table in figure.tables for line in table.lines
        )
    risks = report.parts[0].figures[0].tables[0]
    assert risks.lines[0] == (
        "women",
        "150",
        "0.300 (0.270 to 0.330)",
        "0.400 (0.370 to 0.430)",
        "\N{MINUS SIGN}0.100 (\N{MINUS SIGN}0.142 to \N{MINUS SIGN}0.058)",
        "yes",
    )
    training = report.parts[0].figures[2].tables[0]
    assert training.lines == (
        ("north", "60", "240", "300"),
        ("south", "0", "500", "500"),
        ("all sites", "60", "740", "800"),
    )


def test_all_settings_and_warnings_are_there(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", warnings=["few rows"], seed=41)
    page = Page(render_report(build_report([read_run(run)]), "1.0"))
    for word in ("option learning_rate", "0.1", "8, 4", "41", "12,345", "1 min 15 s", "few rows"):
        assert word in page.words
    assert any('target = "ill"' in word for word in page.words)


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
        "FedAvg (baseline)",
        "FedMinMax",
        "AFL",
        f"FedAvg ({other / 'baseline'}) (baseline)",
        "TERM",
    ]
    (warning,) = report.warnings
    assert warning.startswith("TERM was measured on other groups or test rows than FedMinMax")


@pytest.mark.parametrize("weights_over", ["groups", "sites", "nothing", "groups (parity)"])
def test_every_kind_of_weights(weights_over: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", weights_over=weights_over))
    figure = build_report([run]).parts[0].figures[1]
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
    bars, curves, _, mixes = report.parts[0].figures
    assert "3 groups with lower risk: only in the table" in bars.caption
    assert len(bars.tables[0].lines) == many + 1
    assert "the others are grey" in curves.caption
    assert "3 groups with longer bars: only in the table" in mixes.caption
    assert len(mixes.tables[0].lines) == many
    assert ">group 32</text>" in inline_svg(bars)
    assert "others</text>" in inline_svg(curves)


def test_many_sites_are_drawn_in_part_and_listed_in_full(tmp_path: Path) -> None:
    sites = tuple(f"site {number}" for number in range(100))
    census = tuple((number, 1) for number in range(100))
    run = write_run(tmp_path / "run", site_names=sites, census=census, weights_over="sites")
    report = build_report([read_run(run)])
    figure = report.parts[0].figures[2]
    assert "is the sum of the 41 smallest sites" in figure.caption
    assert len(figure.tables[0].lines) == 101
    text = inline_svg(figure)
    assert "41 smaller sites" in text
    # Sites 0 to 40 have 0 + 1 + ... + 40 rows of the first group.
    assert ">820</text>" in text


def test_large_errors_are_short_on_axes_and_in_tables(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        before=(4.1e8, 2.0e8),
        after=(3.0e8, 2.1234e8),
        halves=(1e7, 1e7),
        task="regression",
    )
    report = build_report([read_run(run)])
    assert report.parts[0].measures[0].lines[1][2] == "212,000,000 (202,000,000 to 222,000,000)"
    text = render_report(report, "1.0")
    assert ">300 M</text>" in text
    assert "1e8" not in text


def test_figures_for_papers(tmp_path: Path) -> None:
    exported = export_figures(hostile_report(tmp_path).figures, tmp_path / "figures")
    assert exported.lacks_glyphs
    assert len(exported.paths) == 10
    for path in exported.paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 300
                assert len(set(image.convert("L").get_flattened_data())) > 10
        else:
            tree = ElementTree.fromstring(path.read_text())  # noqa: S314
            assert tree.tag.endswith("svg")
            assert "var(--" not in path.read_text()
