"""Every block of every page is run by a test, and every command on a page has words that exist.

The picture on the first page: weights sum to 1, and texts fit into their boxes in any font.
"""

import argparse
import re
import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from experiments.paper.__main__ import build_parser as paper_parser
from fedminmax.cli.main import build_parser
from fedminmax.config.checks import check_sections
from fedminmax.config.messages import validated
from fedminmax.config.sections import ConfigSections, resolved
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.flare.federation_file import read_federation_file
from tests.cli.hospitals import write_config
from tests.docs.blocks import NOT_RUN, PAGES, ROOT, RUN_BY, blocks_of, lines_of, words_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LANGUAGES = {"python", "sh", "toml"}
# What makes and tries a release (tests/packages) need not be installed here.
OF_A_RELEASE = {"build", "twine", "empty/bin/python"}
# Parts of a configuration, which are valid together with the rest of one.
FRAGMENTS = ("docs/choosing_groups.md", "docs/report.md")


def test_every_block_is_run_by_a_test() -> None:
    found = {(page, block.language) for page in PAGES for block in blocks_of(page)}
    assert {language for _, language in found} - {""} <= LANGUAGES
    assert {pair for pair in found if pair[1]} == set(RUN_BY)
    for by in RUN_BY.values():
        if isinstance(by, tuple):
            assert by[1] in (ROOT / by[0]).read_text(encoding="utf-8"), by


def test_what_is_not_run_is_on_a_page() -> None:
    lines = [
        line
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "sh"
        for line in lines_of(block.text)
    ]
    assert {
        start for start in NOT_RUN if not any(line.startswith(start) for line in lines)
    } == set()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_have_words_that_exist(page: str) -> None:
    for block in blocks_of(page):
        if block.language == "sh":
            for line in lines_of(block.text):
                _check(line)
        else:
            assert not re.search(r"^\$? ?fedminmax ", block.text, re.MULTILINE), block
    text = (ROOT / page).read_text(encoding="utf-8")
    for line in re.findall(r"^    ((?:fedminmax|python -m) .*)$", text, re.MULTILINE):
        _check(line)
    for span in re.findall(r"`(python -m experiments.paper [^`]*)`", text):
        _check(re.sub(r"\s+", " ", span))
    for span in re.findall(r"`(fedminmax [^`]*)`", text):
        _check_span(re.sub(r"\s+", " ", span))


def test_parts_of_configurations_are_valid(tmp_path: Path) -> None:
    base = tomllib.loads(write_config(tmp_path).read_text(encoding="utf-8"))
    for page in FRAGMENTS:
        for block in blocks_of(page):
            if block.language == "toml":
                sections: dict[str, Any] = base | tomllib.loads(block.text)
                check_sections(validated(resolved(sections), ConfigSections))


def test_the_federation_on_the_page_is_valid(tmp_path: Path) -> None:
    (block,) = (b for b in blocks_of("docs/deployment.md") if b.language == "toml")
    file = tmp_path / "federation.toml"
    file.write_text(block.text, encoding="utf-8")
    assert len(read_federation_file(file).sites) == 3


@pytest.mark.parametrize(
    "line",
    [
        "fedminmax train fedminmax.toml --sedes 5",
        "fedminmax compare synthetic --methods fedminmx",
        "pip install 'fedminmax[tabels]'",
        "make doc",
        "python -m benchmarks.no_such_module",
        "rm -rf /",
    ],
)
def test_words_that_do_not_exist_are_noticed(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        _check(line)


def test_an_option_in_a_sentence_is_noticed() -> None:
    with pytest.raises(AssertionError):
        _check_span("fedminmax train --certifi")


def _check(line: str) -> None:
    """Fail if a command's words do not exist."""
    words = words_of(line)
    match words:
        case ["fedminmax" | "empty/bin/fedminmax", *rest]:
            options = build_parser().parse_args(rest)
            named = getattr(options, "methods", None) or []
            for name in named.split(",") if isinstance(named, str) else named:
                assert re.split("[:@]", str(name))[0] in {"all", *CARDS}, line
        case ["pip", "install" | "wheel", *words]:
            extras = re.search(r"(?:^| )(?:fedminmax|\.)\[([\w,]+)\](?: |$)", " ".join(words))
            assert extras, line
            assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"]), line
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), line
        case ["python", "-m", "experiments.paper", *rest]:
            paper_parser().parse_args(rest)
        case ["python", "-m", module, *_]:
            assert module in OF_A_RELEASE or find_spec(module), line
        case [".", ".venv/bin/activate"]:
            pass
        case ["flwr" | "flower-superlink" | "flower-supernode" as program, *_]:
            # A slow test runs them as they are.
            assert entry_points(group="console_scripts", name=program), line
        case [program, *_] if program == "sed" or program in OF_A_RELEASE:
            pass
        case _:
            raise AssertionError(f"no test knows what to do with: {line}")


def _check_span(span: str) -> None:
    """Fail if a command in a sentence, perhaps without its files, has words that do not exist."""
    parser: argparse.ArgumentParser = build_parser()
    for word in span.split()[1:]:
        if word.startswith("--"):
            assert word in parser._option_string_actions, span
            continue
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert word in action.choices, span
                parser = action.choices[word]
                break


PICTURE = (Path(__file__).parents[2] / "docs" / "overview.svg").read_text(encoding="utf-8")
# DejaVu Sans, which browsers fall back to, needs 0.56 of the font size for an average letter.
WIDEST = 0.6
WHOLE = 60.0


def attributes(element: str) -> dict[str, str]:
    return dict(re.findall(r'([\w-]+)="([^"]*)"', element))


RECTANGLES = [attributes(own) for own in re.findall(r"<rect ([^>]*)/>", PICTURE)]


def test_the_weights_sum_to_one() -> None:
    bars = [own for own in RECTANGLES if own["height"] == "16" and own["fill"] != "#ffffff"]
    assert len(bars) == 3
    assert sum(float(own["width"]) for own in bars) == WHOLE


def test_texts_end_before_their_boxes_do() -> None:
    boxes = [
        [float(own[name]) for name in ("x", "y", "width", "height")]
        for own in RECTANGLES
        if "rx" in own
    ]
    assert len(boxes) == 4
    for size, group in re.findall(r'<g font-size="(\d+)"[^>]*>(.*?)</g>', PICTURE, re.DOTALL):
        for own, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", group):
            x, y = (float(attributes(own)[name]) for name in ("x", "y"))
            end = x + WIDEST * float(size) * len(text)
            for left, top, width, height in boxes:
                if top <= y <= top + height and x < left + width:
                    assert end <= (left + width if left <= x else left), text
