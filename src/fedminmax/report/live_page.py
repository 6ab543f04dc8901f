"""The page of `fedminmax watch`: a run while it goes on, in the look of the report.

The whole page is rendered here; the page's script fetches it again and puts what has changed in
its place. Curves are drawn by matplotlib, which takes a while: they are drawn at most every few
seconds, so that watching a run does not slow it down.
"""

import math
import time
from dataclasses import dataclass

from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.core.text import bounds_text, counted, duration_text, listed, percent, upper_percent
from fedminmax.findings.disclosure import (
    WITHOUT_AGGREGATION,
    guarantee_lines,
    guarantee_words,
    with_aggregation,
)
from fedminmax.findings.records import PrivacyOfRun
from fedminmax.findings.tables import Table
from fedminmax.findings.text import NOTHING, capitalised, named, number, three_figures
from fedminmax.live.watch import LiveModel, LiveRun, Stage, worst_now
from fedminmax.report.curves import Curves, rounds_figure
from fedminmax.report.page import page_template
from fedminmax.report.style import ReportFigure, inline_svg

# Drawing may take this share of one core's time.
SHARE_OF_DRAWING = 1 / 10
MIN_SECONDS_BETWEEN_DRAWINGS = 2.0
WEIGHT_DECIMALS = 3


@dataclass(frozen=True)
class Fact:
    """A number that is known now."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True)
class Drawn:
    """A model's figure as it was last drawn: for wide and for narrow screens."""

    figure: ReportFigure
    wide: str
    narrow: str


@dataclass(frozen=True)
class Drawings:
    """The figures of all models, of which state they are, and when the next may be drawn."""

    by_model: tuple[Drawn | None, ...] = ()
    of: LiveRun | None = None
    next_after: float = -math.inf


def up_to_date(drawings: Drawings, live: LiveRun) -> Drawings:
    """Draw the figures again if there are new rounds and the last drawing is not too recent."""
    if drawings.of is live or time.monotonic() < drawings.next_after:
        return drawings
    before = time.thread_time()
    drawn = tuple(
        _kept(drawings, live, place) or _drawn(live, place) for place in range(len(live.models))
    )
    pause = max((time.thread_time() - before) / SHARE_OF_DRAWING, MIN_SECONDS_BETWEEN_DRAWINGS)
    return Drawings(drawn, live, time.monotonic() + pause)


def _kept(drawings: Drawings, live: LiveRun, place: int) -> Drawn | None:
    """Return a model's last figure if it has no new rounds since."""
    before = drawings.of
    if before is None or place >= len(drawings.by_model) or before.groups != live.groups:
        return None
    is_same = before.models[place].rounds == live.models[place].rounds
    return drawings.by_model[place] if is_same else None


def _drawn(live: LiveRun, place: int) -> Drawn | None:
    model = live.models[place]
    if not model.rounds or not live.groups:
        return None
    figure = rounds_figure(
        Curves(
            model.name,
            model.rounds,
            groups=live.groups,
            group_rows=live.group_rows,
            sites=live.sites,
            risk="risk",
            decimals=_decimals(model),
            shares_weight=not live.small_groups,
            keeps_styles=True,
        ),
        f"model-{place}",
    )
    return Drawn(figure, inline_svg(figure), inline_svg(figure.narrow))


def render_live(live: LiveRun, drawings: Drawings, version: str) -> str:
    """Return the page as HTML."""
    figures = dict(enumerate(drawings.by_model))
    parts = [
        {"model": model, "now": _now(live, model), "drawn": figures.get(place)}
        for place, model in enumerate(live.models)
    ]
    return page_template("watch.html").render(
        live=live,
        stage=live.stage.value,
        words=spoken(live),
        title=f"{_short_state(live)} · {live.place}",
        heading=live.title or live.place,
        done=sum(model.done for model in live.models),
        whole=_whole(live),
        facts=_facts(live),
        parts=parts,
        sites=_sites(live),
        small=_small_groups(live),
        version=version,
    )


def _whole(live: LiveRun) -> int | None:
    """Return the rounds of the whole job, the baseline's with them; None if that is unknown."""
    current = live.current
    if current is None or current.planned is None or not current.rounds:
        return None
    before = sum(model.done for model in live.models if model is not current)
    return before + current.planned + current.rounds_after


def spoken(live: LiveRun) -> str:
    """Return the state in a sentence or two, also for a screen reader."""
    model = live.current
    worst = worst_now(model, live.groups) if model else None
    if model is None or worst is None:
        return live.message
    name, risk = worst
    whose = f"Worst off: “{name}”, training risk" if name else "Highest training risk of a group:"
    return f"{live.message} {whose} {number(risk, _decimals(model))}."


def _short_state(live: LiveRun) -> str:
    model = live.current
    if live.stage is Stage.RUNNING and model is not None and model.rounds:
        return f"Round {model.progress}"
    return live.stage.value.capitalize()


def _facts(live: LiveRun) -> list[Fact]:
    """Return what is known now, the most important first."""
    model = live.current
    facts = []
    if model is not None and model.rounds:
        facts = [*_worst(live, model), *_gap(live, model), *_time_left(model)]
        facts.append(_answered(live, model))
    if live.site_progress or live.threshold:
        word, detail = "no", WITHOUT_AGGREGATION
        if live.threshold:
            word, detail = "yes", with_aggregation(live.threshold)
        facts.append(Fact("Secure aggregation", word, detail))
    if live.privacy is not None:
        facts.append(_budget(live.privacy))
    return facts


def _budget(privacy: Privacy | PrivacyOfRun) -> Fact:
    value = f"\N{GREEK SMALL LETTER EPSILON} = {privacy.epsilon:g}"
    if isinstance(privacy, PrivacyOfRun):
        guaranteed, _, _ = guarantee_lines(privacy, between_sites=False)
    else:
        guaranteed = f"{capitalised(guarantee_words(privacy))}; each site keeps a privacy ledger."
    return Fact("Privacy budget", value, f"{guaranteed} All of it is spent at the start.")


def _worst(live: LiveRun, model: LiveModel) -> list[Fact]:
    worst = worst_now(model, live.groups)
    if worst is None:
        return []
    name, risk = worst
    detail = f"“{name}”" if name else "several groups have it"
    shown = number(risk, _decimals(model))
    return [Fact("Highest training risk of a group", shown, detail)]


def _gap(live: LiveRun, model: LiveModel) -> list[Fact]:
    last = model.rounds[-1]
    if last.certificate is not None:
        proof = last.certificate
        lower, upper = bounds_text(proof.lower, proof.upper)
        what = "risk" if proof.highest_own is None else "excess over its own best model"
        detail = (
            f"certified: no model of this kind brings the worst {proof.players}'s training {what}, "
            f"penalty included, below {lower}; now at most {upper}"
        )
        if proof.limit is not None:
            detail += ", as the tolerance allows; the gap is that of the mean risk"
        if live.small_groups:
            detail += " (with the groups that are too small to be trained for at their share)"
        return [Fact("Optimality gap", upper_percent(proof.gap), detail)]
    if last.remaining is not None:
        detail = "the method's own estimate, as a share of the worst risk; it is not certified"
        return [Fact("Left to gain", percent(last.remaining), detail)]
    return []


def _time_left(model: LiveModel) -> list[Fact]:
    left = model.seconds_left
    if left is None:
        return []
    detail = "at the pace of the last rounds"
    if model.may_stop_early:
        detail += "; it may stop earlier"
    whom = f"for {model.name}{' and then its baseline' if model.rounds_after else ''}"
    return [Fact("Time left", f"about {duration_text(left)}", f"{whom}, {detail}")]


def _answered(live: LiveRun, model: LiveModel) -> Fact:
    if live.site_progress:
        there = sum(site.answered for site in live.site_progress)
        away = [site.name for site in live.site_progress if not site.answered]
        detail = f"not in it: {listed(away)}" if away else "all of them"
        value = f"{there:,} of {counted(len(live.site_progress), 'site')}"
        return Fact("Answered in the last round", value, detail)
    asked = len(model.rounds[-1].participants)
    value = f"{asked:,} of {counted(len(live.sites), 'site')}"
    return Fact("Took part in the last round", value, "")


def _now(live: LiveRun, model: LiveModel) -> Table:
    """Return each group's first and last risk, and its weight if the method has one per group."""
    decimals = _decimals(model)
    if not model.rounds:
        return Table("Risk by group on training records", ("Group",), ())
    first, last = model.rounds[0], model.rounds[-1]
    worst = worst_now(model, live.groups)
    weighted = last.weights_over == "groups" and len(last.weights) == len(live.groups)
    lines = []
    known = sorted(enumerate(live.groups), key=lambda own: -(last.risks[own[0]] or 0.0))
    for place, name in known:
        now = number(last.risks[place], decimals)
        if worst is not None and name == worst[0]:
            now += " (worst)"
        cells = [name, number(first.risks[place], decimals), now]
        lines.append((*cells, number(last.weights[place], WEIGHT_DECIMALS)) if weighted else cells)
    headers = ["Group", f"Risk, round {first.round:,}", f"Risk, round {last.round:,}"]
    return Table(
        "Risk by group on training records" + (", and weight" if weighted else ""),
        (*headers, "Weight now") if weighted else tuple(headers),
        tuple(tuple(line) for line in lines),
    )


def _sites(live: LiveRun) -> Table | None:
    if not live.site_progress:
        return None
    return Table(
        "Who answered",
        ("Site", "In the last round", "Rounds seen with it", "Reason"),
        tuple(
            (
                site.name,
                "yes" if site.answered else "no",
                f"{site.rounds:,}",
                site.reason or NOTHING,
            )
            for site in live.site_progress
        ),
    )


def _small_groups(live: LiveRun) -> str:
    if not live.small_groups:
        return ""
    return (
        f"Not shown: {named(live.small_groups)}. Too few training records to be trained for, so "
        "their risk is mostly chance."
    )


def _decimals(model: LiveModel) -> int:
    """Return how many decimals show three figures of the highest risk so far."""
    return three_figures(max(risk or 0.0 for record in model.rounds for risk in record.risks))
