"""The facts and sentences about one run, which terminal, card and report show.

What a reader sees first is a title that states the finding, what to do, and three numbers. Title
and suggestion follow from the verdict alone, so that they are never an opinion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedminmax.core.text import counted, listed
from fedminmax.findings.disclosure import merged_groups_text, privacy_lines, small_groups_text
from fedminmax.findings.records import Change, Results, VerdictOfRun
from fedminmax.findings.text import MINUS, capitalised, interval_name
from fedminmax.findings.training import (
    certificate_text,
    convergence_of,
    cost_text,
    could_be_better,
    own_risks_text,
    validation_text,
    weights_text,
)
from fedminmax.findings.verdict import (
    EVERYONE,
    KINDS,
    NO_BASELINE,
    NO_TEST,
    NOT_FINISHED,
    OF_PEOPLE,
    change_texts,
    kinds_of,
    level_cell,
    measure_of,
    mistakes_of,
    model_names,
    worst_before,
    worst_of,
)
from fedminmax.methods.catalogue import CARDS

Tone = Literal["better", "worse", "mixed", "same"]
TONES: dict[str, Tone] = {
    "helped": "better",
    "helped, at a price": "mixed",
    "no benefit: keep the standard model": "worse",
}
SUGGESTIONS = {
    "helped": "Suggested: use the {new} model.",
    "helped, at a price": "You decide: is the gain of the worst-off group worth the harm to "
    "others? fedminmax frontier finds compromises.",
    "no clear change": "Either model will do. More test records could show a difference.",
    "no benefit: keep the standard model": "Suggested: keep the {standard} model. Try other "
    "features or another kind of model before another {new} one.",
}


@dataclass(frozen=True)
class KeyFact:
    """A number before and after, in a unit; the note has the interval of the change."""

    name: str
    before: str | None
    after: str
    unit: str
    note: str
    tone: Tone


@dataclass(frozen=True)
class FirstScreen:
    """The finding in one sentence, how it was found, what to do next, and its numbers."""

    title: str
    explanation: str
    suggestion: str
    tone: Tone
    facts: tuple[KeyFact, ...]


def first_screen(results: Results) -> FirstScreen:
    """Say what was found, the most important first."""
    verdict = results.verdict.verdict if results.verdict else None
    standard, new = model_names(results)
    return FirstScreen(
        _title(results),
        _explanation(results),
        SUGGESTIONS.get(verdict or "", "").format(standard=standard, new=new),
        TONES.get(verdict or "", "same"),
        tuple(_facts(results)),
    )


def _title(results: Results) -> str:
    verdict = results.verdict
    if verdict is None or verdict.verdict == NOT_FINISHED:
        return _without_verdict(results)
    worst = verdict.worst_group
    told = KINDS[kinds_of(results)[0]]
    groups = [one for one in verdict.harms if one.kind == told and one.group != EVERYONE]
    named = [harm_text(results, harm) for harm in (*groups, *verdict.harms)[:1]]
    if verdict.verdict == "no clear change":
        return "No clear change: no group clearly gained, and none clearly lost."
    if worst is None:
        return f"No benefit: {named[0]}."
    whom = f"“{worst.group}”, the worst-off group"
    if verdict.verdict == "helped":
        return f"It helped {whom}, and made no group clearly worse off."
    if verdict.verdict == "helped, at a price":
        return f"It helped {whom}, but {named[0]}."
    if worst.is_clear and worst.value < 0:
        return f"No benefit: {named[0]} and is now worse off than “{worst.group}” was."
    if worst.is_clear:
        return f"No benefit: {whom}, did worse."
    return f"No benefit: {whom}, did not improve, and {named[0]}."


def _without_verdict(results: Results) -> str:
    """Say what is missing; of one model, who is worst off."""
    reason = results.verdict.reason if results.verdict else ""
    worst = worst_of(results)
    if reason == NO_TEST:
        return "No verdict: there are no test records."
    if reason and reason != NO_BASELINE:
        return "Not finished: training needs more rounds."
    if worst is None:
        return "Too few test records to say which group is worst off."
    metric = kinds_of(results)[0]
    level = results.test.metrics[metric].by_group[results.groups.index(worst[0])]
    cell, *_ = level_cell(results, metric, level, worst[0]).split(" (")
    return f"“{worst[0]}” is worst off: {cell} {unit_of(results)}."


def harm_text(results: Results, harm: Change) -> str:
    """Say who did worse, and in what."""
    positive = results.classes[-1] if results.classes else ""
    if harm.group == EVERYONE:
        return {
            "missed": f"more “{positive}” are missed overall",
            "false alarms": "there are more false alarms overall",
        }.get(harm.kind, "there are more mistakes overall")
    return {
        "missed": f"more “{positive}” are missed in “{harm.group}”",
        "false alarms": f"“{harm.group}” has more false alarms",
    }.get(harm.kind, f"“{harm.group}” did worse")


def _explanation(results: Results) -> str:
    tested = counted(results.test.rows, "record")
    if results.is_audit:
        both = f"Both models were measured on the same {tested}." if results.change else ""
        return both or f"The model was measured on {tested}."
    if results.change is None:
        return results.verdict.reason if results.verdict else ""
    if results.verdict and results.verdict.verdict == NOT_FINISHED:
        return results.verdict.reason
    _, new = model_names(results)
    card = CARDS.get(results.method.key)
    aim = f"minimises this: {card.optimises}" if card and new != "minimax" else ""
    aim = aim or "is as good as possible for whichever group is worst off"
    now, before = worst_of(results), worst_before(results)
    moved = before is not None and now is not None and now[0] != before
    return (
        "Two models were trained on the same records: the standard model is best on average; the "
        f"{new} model {aim}. The numbers below are for {tested} that neither model had seen."
        + (f" “{now[0]}” is worst off now." if moved and now else "")
    )


def unit_of(results: Results) -> str:
    """Name what the numbers of a run are."""
    kind = KINDS[kinds_of(results)[0]]
    return "wrong per 1,000" if kind in OF_PEOPLE else measure_of(results, kind)


def _facts(results: Results) -> list[KeyFact]:
    """Return the worst-off group, everyone, and the mistakes that changed most: harm first."""
    metric, *kinds = kinds_of(results) if results.test.rows else [""]
    if not metric:
        return []
    if results.change is None:
        return _levels(results, metric)
    told = {change.group: change for change in mistakes_of(results, metric) if change}
    name = worst_before(results)
    shown = {f"Worst-off group: {name}": told.get(name or ""), "Everyone": told.get(EVERYONE)}
    facts = [_fact(results, title, change) for title, change in shown.items() if change]
    return [*facts, _largest_change(results, kinds, told, name)]


def _levels(results: Results, metric: str) -> list[KeyFact]:
    worst, levels = worst_of(results), results.test.metrics[metric]
    named = {"Everyone": (EVERYONE, levels.overall)}
    if worst is not None:
        own = levels.by_group[results.groups.index(worst[0])]
        named = {f"Worst-off group: {worst[0]}": (worst[0], own), **named}
    found = []
    for title, (group, level) in named.items():
        value, _, interval = level_cell(results, metric, level, group).partition(" (")
        note = f"{interval_name(results.test)} {interval.removesuffix(')')}" if interval else ""
        found.append(KeyFact(title, None, value, unit_of(results), note, "same"))
    return found


def _largest_change(
    results: Results, kinds: Sequence[str], told: dict[str, Change], worst: str | None
) -> KeyFact:
    """Return the largest harm that the other facts do not tell, else the largest gain."""
    rates = [own for kind in kinds for own in mistakes_of(results, kind) if own]
    others = [own for name, own in told.items() if name not in (worst, EVERYONE)]
    clear = [own for own in (*rates, *others) if own.is_clear]
    largest = max(clear, key=lambda own: (own.value > 0, abs(own.value)), default=None)
    if largest is None:
        what = "No error rate clearly changed" if kinds else "No other group clearly changed"
        return KeyFact("Other changes", None, "none", "", what, "same")
    where = capitalised(EVERYONE) if largest.group == EVERYONE else largest.group
    positive = results.classes[-1] if results.classes else ""
    titles = {"missed": f"“{positive}” missed: {where}", "false alarms": f"False alarms: {where}"}
    return _fact(results, titles.get(largest.kind, f"Changed most: {where}"), largest)


def _fact(results: Results, title: str, change: Change) -> KeyFact:
    texts = change_texts(results, change)
    unit = unit_of(results)
    if change.kind in OF_PEOPLE and change.kind != "misclassified":
        unit = "per 1,000"
    interval = f"{texts.low} to {texts.high}"
    if results.verdict and results.verdict.verdict == NOT_FINISHED:
        return KeyFact(title, texts.before, texts.after, unit, f"Not finished ({interval})", "same")
    if not change.is_clear:
        note = f"No clear change ({interval})"
        return KeyFact(title, texts.before, texts.after, unit, note, "same")
    tone: Tone = "worse" if change.value > 0 else "better"
    # The word has the sign: what is better by 8 to 92 has changed by -92 to -8.
    ends = (texts.low, texts.high) if change.value > 0 else (texts.high, texts.low)
    size, least, most = (end.lstrip(f"+{MINUS}") for end in (texts.value, *ends))
    note = f"{capitalised(tone)} by {size} ({least} to {most})"
    return KeyFact(title, texts.before, texts.after, unit, note, tone)


@dataclass(frozen=True)
class ModelFindings:
    """How one model was trained: has it converged, what is certified, which round was chosen."""

    results: Results
    convergence: str
    certificate: str | None
    validation: str


@dataclass(frozen=True)
class Findings:
    """What a run found, in words; "" and () where there is nothing to say.

    ``after_training`` is about avoidable risks, final weights and cost. A baseline has no verdict.
    """

    model: ModelFindings
    baseline: ModelFindings | None
    verdict: VerdictOfRun | None
    screen: FirstScreen
    small_groups: str
    could_be_better: str
    after_training: tuple[str, ...]
    privacy: tuple[str, ...]

    @property
    def headline(self) -> str:
        """The verdict as a sentence; "" if there is none."""
        return f"{capitalised(self.verdict.verdict)}." if self.verdict else ""

    @property
    def models(self) -> tuple[ModelFindings, ...]:
        """The method's model, and the baseline's if there is one."""
        return (self.model,) if self.baseline is None else (self.model, self.baseline)

    @property
    def in_short(self) -> list[str]:
        """How training went: in a sentence what went well, in full what did not."""
        runs = [own.results for own in self.models]
        well = [run.method for run in runs if run.converged and not run.is_audit]
        named = listed([f"{method.name} ({counted(method.rounds, 'round')})" for method in well])
        short = f"{named} {'has' if len(well) == 1 else 'have'} converged." if well else ""
        others = [own.convergence for own in self.models if own.results.method not in well]
        return [text for text in (short, *others, self.model.validation) if text]

    @property
    def certified(self) -> str:
        """Whether another model could do better, as far as it is certified, or why nothing is."""
        proof = self.model.results.proof
        if proof is None or not proof.is_of_groups:
            return self.model.certificate or ""
        return f"Could a model of this kind do better? {self.could_be_better}"


def findings(results: Results, baseline: Results | None = None) -> Findings:
    """Put a run's results into words, against those of its baseline if there is one."""
    tested = bool(results.test.rows)
    after = weights_text(results), cost_text(results)
    small = small_groups_text(results.groups, results.test) if tested else ""
    return Findings(
        _model(results),
        None if baseline is None else _model(baseline),
        results.verdict,
        first_screen(results),
        " ".join(text for text in (small, merged_groups_text(results)) if text),
        could_be_better(results),
        tuple(text for text in (own_risks_text(results), *after) if text),
        privacy_lines(results),
    )


def _model(results: Results) -> ModelFindings:
    return ModelFindings(
        results, convergence_of(results), certificate_text(results), validation_text(results)
    )
