"""The advice as one HTML page that needs nothing else."""

from fedminmax.report.advice import Advice
from fedminmax.report.advice_figure import groups_table, mixes_figure
from fedminmax.report.advice_words import (
    ANY_PARTITION,
    COST_EXPLAINED,
    COST_HEADERS,
    answer,
    cost_cells,
    remedies,
)
from fedminmax.report.html_figure import Table
from fedminmax.report.html_report import page_template
from fedminmax.report.html_svg import inline_svg

GENERATOR = "fedminmax advise"


def render_advice(advice: Advice, source: str, version: str) -> str:
    """Write the page about the census that ``source`` names."""
    return page_template("advice.html").render(
        source=source,
        answer=answer(advice),
        any_partition=ANY_PARTITION,
        picture=mixes_figure(advice, "mixes"),
        groups=groups_table(advice),
        costs=Table(
            COST_EXPLAINED, COST_HEADERS, tuple(tuple(cost_cells(own)) for own in advice.costs)
        ),
        reveals=Table(
            "What each method makes a holder show to the server",
            ("a holder shows", "methods"),
            tuple((words, ", ".join(keys)) for words, keys in advice.reveals.items()),
        ),
        remedies=remedies(advice),
        generator=GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )
