"""What mkdocs calls while it builds the site: pages from all over the repository, formulas.

Links in our pages are those of the repository, so that they also work where the files are read
as they are. A page in ``docs`` is at the top of the site, and every other file that a page links
to keeps its path; an example also becomes a page. mkdocs reads lists in an older dialect than
everyone else, so they are indented for it; examples in docstrings become blocks of code. Formulas
between dollars become MathML, which browsers draw without a script.
"""

import json
import re
from collections.abc import Iterator
from html import unescape
from io import BytesIO
from pathlib import Path
from posixpath import normpath, relpath

import ziamath
from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Pages of the site outside docs; what they link to follows.
FURTHER = ("CHANGELOG.md", "CONTRIBUTING.md", "experiments/*/README.md")
EMPTY_HEADING = re.compile(r"<th(?: [^>]*)?></th>")
LINK = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?(?=\))")
# ASCII, Latin-1, Greek, punctuation, l, arrows and operators, brackets, italic Latin and Greek.
CHARACTERS = (
    *((0x20, 0x7F), (0xA0, 0x100), (0x370, 0x400), (0x2010, 0x2040), (0x2113, 0x2114)),
    *((0x2190, 0x2300), (0x27E8, 0x27EA), (0x1D434, 0x1D468), (0x1D6FC, 0x1D71C)),
)
DOCTEST = re.compile(r"^>>> .*(?:\n(?!```).*\S.*)*", re.MULTILINE)
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add our reading of lists and doctests."""
    config.markdown_extensions.append(_AsElsewhere())  # type: ignore[arg-type]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside ``docs``, and all files that pages link to."""
    of_docs = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    further = {path.relative_to(ROOT).as_posix() for name in FURTHER for path in ROOT.glob(name)}
    found, waiting = set(of_docs), sorted(of_docs | further)
    while waiting:
        path = waiting.pop()
        if path not in of_docs and not path.startswith("docs/"):
            found.add(path)
        if path.endswith((".md", ".ipynb")):
            waiting += [linked for linked in _linked(path) if linked not in found]
    for path in sorted(found - of_docs):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        if _is_example(path):
            files.append(File.generated(config, _page_of(path), content=example_page(path)))
    files.append(File.generated(config, "math.woff", content=math_font()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead to the places that files have on the site."""
    inside = page.file.generated_by is None
    folder = Path("docs" if inside else "", page.file.src_uri).parent.as_posix()

    def moved(link: re.Match[str]) -> str:
        target = normpath(f"{folder}/{link['path']}").removeprefix("docs/")
        if _is_example(target) and page.file.src_uri != _page_of(target):
            target = _page_of(target)
        here = Path(page.file.src_uri).parent.as_posix()
        return relpath(target, here) + (link["anchor"] or "")

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Turn formulas into MathML; a table's empty corner is no heading."""

    def drawn(formula: re.Match[str]) -> str:
        display = "block" if formula["tag"] == "div" else "inline"
        made = convert(unescape(formula["tex"]).strip(), display=display)
        if "\\" in made:
            raise PluginError(f"{page.file.src_uri}: not understood: {formula['tex']}")
        return f'<div class="formula" tabindex="0">{made}</div>' if display == "block" else made

    return EMPTY_HEADING.sub("<td></td>", FORMULA.sub(drawn, html))


class _AsElsewhere(Extension):
    """Read pages and docstrings as other readers do."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (its name at Python-Markdown)
        md.preprocessors.register(_Prepare(md), "as_elsewhere", priority=28)


class _Prepare(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = DOCTEST.sub(r"```pycon\n\g<0>\n```\n", "\n".join(lines))
        return lists_as_mkdocs_reads_them(text).split("\n")


def lists_as_mkdocs_reads_them(markdown: str) -> str:
    """Indent what is in lists by four columns, and separate lists from the text before them."""
    lines = markdown.split("\n")
    items: list[list[int]] = [[] for _ in lines]  # of each line: the items that it is in
    apart = set()  # lines that need an empty one before them
    loose: list[bool] = []  # of each list around: has it paragraphs?
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type.endswith("_list_close"):
            loose.pop()
        elif token.type.endswith("_list_open") and token.map is not None:
            inside = "\n".join(lines[slice(*token.map)]).rstrip()
            loose.append("\n\n" in inside)
            if token.level == 0:
                apart.add(token.map[0])
        elif token.type == "list_item_open" and token.map is not None:
            for number in range(*token.map):
                items[number].append(token.map[0])
            if loose[-1]:
                apart.add(token.map[0])
    indented, widths = [], dict[int, int]()
    for number, line in enumerate(lines):
        text, depth = line, len(items[number])
        for item in items[number]:
            if item == number:
                marker = re.match(r" *([-+*]|\d+[.)]) +", text)
                if marker is None:
                    break
                widths[item] = marker.end()
                text = f"{marker[1]:<4}{text[marker.end() :]}"
                depth -= 1
            else:
                space = len(text) - len(text.lstrip(" "))
                text = text[min(space, widths.get(item, 0)) :]
        if number in apart and indented and indented[-1].strip():
            indented.append("")
        indented.append(("    " * depth + text).rstrip())
    return "\n".join(indented)


def math_font() -> bytes:
    """Return the part of STIX Two Math that formulas need: few computers have a font for them."""
    font = TTFont(Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf")
    options = subset.Options(layout_features=["*"], name_IDs=["*"], hinting=False)
    part = subset.Subsetter(options)
    part.populate(unicodes=[number for ends in CHARACTERS for number in range(*ends)])
    part.subset(font)
    font.flavor = "woff"
    file = BytesIO()
    font.save(file)
    return file.getvalue()


def example_page(path: str) -> str:
    """Return an example as a page: a notebook's cells, or a script's docstring and its code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    name = Path(path).name
    if name.endswith(".ipynb"):
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        run = f"Open [{name}]({name}) in Jupyter to run it."
    else:
        _, docstring, code = text.split('"""', 2)
        cells = [("markdown", f"# {docstring.replace('.', '', 1)}"), ("code", code.strip())]
        run = f"`python examples/{name}` runs [it]({name})."
    title, _, introduction = cells[0][1].partition("\n")
    cells[0] = ("markdown", f"{title}\n\n{run}\n{introduction}")
    parts = [f"```python\n{body}\n```" if kind == "code" else body for kind, body in cells]
    return "\n\n".join(parts) + "\n"


def _is_example(path: str) -> bool:
    return path.startswith("examples/") and path.endswith((".ipynb", ".py"))


def _page_of(example: str) -> str:
    return str(Path(example).with_suffix(".md"))


def _linked(path: str) -> Iterator[str]:
    """The repository's files that a page links to; mkdocs complains of those that do not exist."""
    for link in LINK.finditer((ROOT / path).read_text(encoding="utf-8")):
        target = normpath(f"{Path(path).parent.as_posix()}/{link['path']}")
        if (ROOT / target).is_file():
            yield target
