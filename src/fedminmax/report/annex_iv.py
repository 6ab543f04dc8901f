"""A skeleton of the technical documentation of Annex IV of the EU AI Act (Regulation 2024/1689).

By point: what the run knows is filled in; what it cannot know is an open question of that point.
"""

from collections.abc import Iterator

from fedminmax.core.text import markdown_table, markdown_text
from fedminmax.findings.privacy import what_the_server_sees
from fedminmax.findings.records import RISK
from fedminmax.findings.text import interval_name
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED, SELECTED
from fedminmax.report.documents import NO_CLAIM, OPEN, Known, open_question, shown_counts

SHOWN = ("auroc", "accuracy", RISK, MISSED, FALSE_ALARMS, SELECTED, "calibration")


def annex_iv(known: Known) -> str:
    """Return the skeleton in Markdown, its open questions by point at the end."""
    points = list(_points(known))
    lines = ["# Technical documentation: " + markdown_text(known.title), "", NO_CLAIM, ""]
    for number, title, texts in points:
        lines += [f"## {number} {title}", "", *(f"{text}\n" for text in texts)]
    questions = [
        (number, text.split(f"{OPEN}: ")[1])
        for number, _, texts in points
        for text in texts
        if OPEN in text
    ]
    table = markdown_table(["point", "question"], [list(own) for own in questions])
    return "\n".join([*lines, f"## {len(questions)} open questions", "", table, ""])


def _points(known: Known) -> Iterator[tuple[str, str, list[str]]]:
    results, stated = known.results, known.stated
    yield (
        "1",
        "General description",
        [
            f"(a) {known.title}, version of {known.version}.",
            f"Intended purpose: {markdown_text(stated.intended_use)}"
            if stated.intended_use
            else open_question("(a) intended purpose and provider"),
            open_question("(b) with which hardware and software does it interact?"),
            open_question("(c) versions of software and requirements for updates"),
            open_question("(d) in which forms is it put into service, and (e) on which hardware?"),
            open_question("(g) user interface and (h) instructions for use for the deployer"),
        ],
    )
    yield (
        "2",
        "Elements and development",
        [
            open_question("(a) how, with which tools and models of others, was it developed?")
            if results.is_audit
            else f"(a) With fedminmax: {results.method.rounds} rounds, seed {results.seed}.",
            f"(b) What it optimises for: {markdown_text(known.objective)}"
            if known.objective
            else open_question("(b) what does the system optimise for?"),
            f"(b) Persons and groups: {markdown_text(', '.join(results.groups))}.",
            f"(b) Trade-offs: {markdown_text(known.verdict)}"
            if known.verdict
            else open_question("(b) which trade-offs were decided, by whom and why?"),
            f"(c) Kind: {results.model.kind}; columns: {markdown_text(known.features)}."
            if known.features
            else open_question("(c) architecture, and the columns that the model reads"),
            *_data(known),
            open_question("(d) how were data obtained, selected, labelled and cleaned?"),
            open_question("(e) which human oversight does Article 14 need here?"),
            open_question("(f) which changes are determined beforehand?"),
            (
                "(g) Validation and testing: metrics and potentially discriminatory impacts are in "
                f"point 3, on test records by group: {markdown_text(known.counts)}."
            ),
            open_question("(g) test logs and reports, dated and signed by those responsible"),
            open_question("(h) cybersecurity measures beyond those of point 2 (d)"),
        ],
    )
    yield "3", "Performance, limits and foreseeable risks", _performance(known)
    yield (
        "4",
        "Why these performance metrics",
        [
            (
                "Each metric is measured for each group with an interval, because an average "
                "hides who is served worse."
            ),
            open_question("why are these metrics right for the intended purpose?"),
        ],
    )
    for number, title, question in (
        ("5", "Risk management system", "which risks of Article 9 were found, and what was done?"),
        ("6", "Changes through the lifecycle", "which relevant changes did the provider make?"),
        ("7", "Harmonised standards", "which standards are applied, in full or in part?"),
        ("8", "EU declaration of conformity", "a copy of the declaration (Article 47)"),
        ("9", "Post-market monitoring", "the plan and system of Article 72"),
    ):
        yield number, title, [open_question(question)]


def _data(known: Known) -> list[str]:
    results, census = known.results, known.run.census
    card = CARDS.get(results.method.key)
    by_group = [sum(own) for own in zip(*census.train, strict=True)]
    texts = []
    if any(by_group):
        shown, total = shown_counts(by_group)
        listing = "; ".join(
            f"{name}: {own}" for name, own in zip(census.groups, shown, strict=True)
        )
        texts.append(f"(d) Training records by group: {markdown_text(listing)}; all: {total}.")
    if card is not None:
        texts.append(f"(d) {markdown_text(what_the_server_sees(results, card.reveals))}")
    return texts


def _performance(known: Known) -> list[str]:
    texts = [f"Accuracy for persons and groups, and overall ({interval_name(known.results.test)}):"]
    for title, lines in known.measures(SHOWN):
        table = markdown_table(["group", title], [list(own) for own in lines])
        texts.append(table)
    parity = known.parity()
    if parity:
        headers = ["between groups", "difference", "ratio"]
        texts.append(markdown_table(headers, [list(own) for own in parity]))
    texts += [text for text in (known.verdict, known.not_assessed) if text]
    texts += [
        open_question("which unintended outcomes and risks to rights are foreseeable?"),
        open_question("which human oversight and specifications of input data are needed?"),
    ]
    return texts
