"""One page about a run for a board: plain words, few numbers, and what is not known.

Printed, it is one sheet, A4 or Letter, whatever the names in the data: long texts are cut, and the
report has them in full.
"""

from dataclasses import dataclass

from fedminmax.core.text import counted, listed
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.network.wire.plan import masked_words
from fedminmax.report.mistakes import mistakes, mistakes_fact
from fedminmax.report.page import GENERATOR, NOT_STATED, about, page_template
from fedminmax.report.people import people
from fedminmax.report.questions import BETTER, could_be_better
from fedminmax.report.read_run import Run
from fedminmax.report.story import facts, story
from fedminmax.report.text import interval_name, risk_meaning, risk_name, short
from fedminmax.runs.remarks import verdict_of

# In characters; a sheet has room for about 4,000 in all.
LONG, MEDIUM = 560, 300
MAX_NAME = 60
MAX_NAMED = 4


@dataclass(frozen=True)
class Part:
    """A heading and what is said under it."""

    heading: str
    paragraphs: tuple[str, ...]


def render_summary(run: Run, version: str) -> str:
    """Return the page as HTML."""
    return page_template("summary.html").render(
        title=short(about(run).title, 120),
        parts=_parts(run),
        facts=[*facts(run), *mistakes_fact(run)],
        baseline=run.baseline.results.method.name if run.baseline else None,
        method=run.label,
        finished=run.chosen.results.finished,
        generator=GENERATOR,
        version=version,
    )


def _parts(run: Run) -> list[Part]:
    known = dict(about(run).facts)
    trained = [short(known[name], MEDIUM) for name in ("What is predicted", "On which rows")]
    uses = " ".join(
        f"{name}: {'not stated.' if known[name] == NOT_STATED else known[name]}"
        for name in ("Intended use", "Not for")
    )
    return [
        Part("What was trained", (" ".join(trained), short(uses, MEDIUM))),
        Part("For whom it is worst, and compared with the plain model", _worst(run)),
        Part(BETTER, (short(_better(run), LONG),)),
        Part("What is not known", tuple(_unknown(run))),
        Part("Privacy", (short(_privacy(run), LONG),)),
    ]


def _worst(run: Run) -> tuple[str, ...]:
    """Return the result in people if it was measured, and in risk, with what that means."""
    results = run.chosen.results
    risk = f"{risk_name(results)[0].upper()}{risk_name(results)[1:]}: {risk_meaning(results)}."
    texts = (short(people(run), LONG), mistakes(run), short(story(run), LONG), risk)
    return tuple(text for text in texts if text)


def _better(run: Run) -> str:
    """Return the short answer; where nothing is proved, with the reason."""
    answer = could_be_better(run)
    proved = run.chosen.results.proof is not None
    return answer.short if proved else f"{answer.short} {answer.reasons[0]}"


def _unknown(run: Run) -> list[str]:
    results = run.chosen.results
    small = results.test.small_groups(results.groups)
    texts = []
    if small:
        names = [f"“{short(name, MAX_NAME)}”" for name in list(small)[:MAX_NAMED]]
        if len(small) > MAX_NAMED:
            names.append(f"{len(small) - MAX_NAMED:,} more")
        groups = counted(len(small), "group has", "groups have")
        texts.append(
            f"How the model serves {listed(names)}: {groups} under {MIN_ROWS} test rows, or too "
            "few training rows."
        )
    if not results.converged:
        texts.append(short(verdict_of(results), MEDIUM))
    if run.baseline is None:
        texts.append("Whether a plain model would be better or worse: none was trained.")
    texts.append(
        f"How it does with other training rows: the {interval_name(results)}s are about other test "
        "rows of the same groups. Nothing is said of groups that were not named, of other "
        "measures, or of how predictions are used."
    )
    return texts


def _privacy(run: Run) -> str:
    results = run.chosen.results
    texts = ["One process read all sites' files; in a federation, sites would send sums."]
    if results.sites is not None:
        texts = ["No row left its site; sites sent sums over their rows."]
        texts.append(
            "Each site's sums were visible to the server."
            if results.secure_aggregation is None
            else f"They were masked: {masked_words(results.secure_aggregation)}."
        )
    own = results.privacy
    if own is None:
        texts.append(
            "There is no formal bound (differential privacy) on what the model reveals of a row."
        )
    else:
        unit = "one training row" if own.unit == "row" else "all that one site has"
        texts.append(
            f"What the model reveals of {unit} is bounded: differential privacy with epsilon "
            f"{own.epsilon:g} and delta {own.delta:g}. Test results and counts are not covered."
        )
    return " ".join(texts)
