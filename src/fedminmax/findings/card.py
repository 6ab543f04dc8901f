"""model_card.md: what a trained model is, for which groups it was measured, and its limits.

The card follows Mitchell et al.: Model cards for model reporting, FAT* 2019. Its text is the
template ``model_card.md`` beside this file.
"""

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedminmax.config.sections import ReportSection
from fedminmax.core.iterates import Iterate
from fedminmax.core.text import counted, duration_text, markdown_table, markdown_text
from fedminmax.data.tables.census import CensusFile
from fedminmax.data.tables.encoding import Encoding
from fedminmax.findings import text
from fedminmax.findings.disclosure import remarks, what_the_server_sees
from fedminmax.findings.findings import findings
from fedminmax.findings.records import Measured, Results
from fedminmax.findings.tables import (
    DIFFERENCE,
    groups_table,
    metrics_table,
    mistakes_tables,
    parity_table,
)
from fedminmax.findings.verdict import RULE
from fedminmax.methods.card import MethodCard
from fedminmax.metrics.intervals import MIN_ROWS


def render_card(
    results: Results,
    encoding: Encoding,
    *,
    census: CensusFile,
    card: MethodCard,
    section: ReportSection,
) -> str:
    """Return the card of a model trained by this method; ``section`` states its intended use."""
    environment = Environment(
        loader=PackageLoader("fedminmax.findings", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, whose text the filter "plain" escapes
    )
    environment.filters |= {"plain": markdown_text, "duration": duration_text}
    return environment.get_template("model_card.md").render(
        results=results,
        found=findings(results),
        method=card,
        stated=section,
        not_stated=text.NOT_STATED,
        schema=encoding.schema,
        columns=counted(len(encoding.features), "column"),
        kind=_kind(results),
        loss=text.LOSS_NAMES[results.loss],
        risk=text.risk_name(results),
        meaning=text.MEANINGS[results.task],
        interval=text.interval_name(results.test),
        difference=DIFFERENCE,
        min_records=MIN_ROWS,
        groups=_groups(results, census),
        returned=_returned(results.iterate),
        seen=what_the_server_sees(results, card.reveals),
        metrics=lambda test: _metrics(results, test),
        rule=RULE,
        changes=_changes(results),
        counted=counted,
        remarks=remarks(results),
    )


def _kind(results: Results) -> str:
    article = "An" if results.model.kind[0] in "aeiou" else "A"
    model = f"{article} {results.model.kind} model"
    if results.model.hidden:
        model += f" with hidden layers {list(results.model.hidden)}"
    if results.model.members > 1:
        model = f"A mixture of {results.model.members} models, each {model[0].lower()}{model[1:]}"
    return model


def _returned(iterate: str) -> str:
    """Say which of the rounds' models is returned; some methods choose it themselves."""
    if iterate not in [which.value for which in Iterate]:
        return f"{iterate} among the rounds' models"
    return f"{iterate.replace('_', ' ')} of the rounds' models"


def _groups(results: Results, census: CensusFile) -> str:
    table, notes = groups_table(results, census)
    shown = markdown_table(table.headers, table.lines)
    return "\n\n".join((shown, *map(markdown_text, notes)))


def _metrics(results: Results, test: Measured) -> str:
    tables = [metrics_table(results, test, ""), parity_table(results, test)]
    return "\n\n".join(markdown_table(own.headers, own.lines) for own in tables if own)


def _changes(results: Results) -> list[tuple[str, str]]:
    """Return the caption and the table of each kind of mistake, with its change."""
    tables = mistakes_tables(results) if results.change else []
    return [(one.caption, markdown_table(one.headers, one.lines)) for one in tables]
