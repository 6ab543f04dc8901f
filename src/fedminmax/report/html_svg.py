"""A figure as SVG inside the page: with a name, identifiers of its own and the page's colours."""

import io
import re
from html import escape

from fedminmax.report.html_figure import ReportFigure
from fedminmax.report.html_style import INK, PAPER, RULE, styled_figure, without_missing_signs

# Words in an SVG have no bare angle brackets, so this finds tags and nothing else.
TAG = re.compile(r"<[a-zA-Z/][^<>]*>")
IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)')
PAGE_COLOURS = {INK: "var(--ink)", RULE: "var(--rule)", PAPER: "var(--paper)"}
WHERE_NUMBERS_ARE = "All numbers are in the tables that follow."
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def inline_svg(figure: ReportFigure) -> str:
    """Draw the figure for the page."""
    buffer = io.StringIO()
    with (
        without_missing_signs(),
        styled_figure(figure.width, figure.height, as_text=True) as canvas,
    ):
        figure.draw(canvas)
        canvas.savefig(buffer, format="svg", metadata=NO_METADATA)
    drawn = buffer.getvalue()
    body = drawn[drawn.index(">", drawn.index("<svg ")) + 1 :]
    # Its style sheet would reach the whole page.
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)
    return _opening(figure) + TAG.sub(lambda tag: _own(tag[0], figure.name), body)


def _opening(figure: ReportFigure) -> str:
    name, width, height = figure.name, f"{figure.width * 72:g}", f"{figure.height * 72:g}"
    return (
        f'<svg role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}">'
        f'<title id="{name}-title">{escape(figure.title)}</title>'
        f'<desc id="{name}-desc">{escape(figure.description)} {WHERE_NUMBERS_ARE}</desc>'
    )


def _own(tag: str, name: str) -> str:
    tag = IDENTIFIER.sub(rf"\g<1>{name}-", tag)
    for colour, page_colour in PAGE_COLOURS.items():
        tag = tag.replace(colour, page_colour)
    return tag
