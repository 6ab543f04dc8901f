"""Documents that others ask for, filled in with what a run knows; their texts are templates.

- Annex IV of the EU AI Act (Regulation 2024/1689): a skeleton of the technical documentation;
- the Applied Model Card of the Coalition for Health AI, as XML of its schema v0.2
  (https://mc.chai.org/v0.2/schema.xsd), with every element that it requires;
- the tables that New York City's Local Law 144 asks for (6 RCNY 5-301): by sex, by race/ethnicity
  and by their intersection records, selection rate and impact ratio, which is a category's rate
  divided by the highest one. Categories with less than 2% of the records may be left out, with
  their number; records of unknown category are counted. The law asks for scoring rates (the share
  above the median) where there is no selection; a run does not record scores.

Counts are told as in the report (``findings.disclosure``): none from 1 to 9, and none that would
tell such a count by subtraction, within a document or between two. Values of groups that are too
small to compare are left out as well. What a run does not know is an open question, never a guess.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted, markdown_table, markdown_text
from fedminmax.findings.disclosure import (
    FEWER,
    LEAST,
    decimals_of_count,
    decimals_told,
    is_small,
    is_told,
    publishable,
    what_the_server_sees,
)
from fedminmax.findings.records import RISK, Results
from fedminmax.findings.text import (
    NOTHING,
    capitalised,
    estimate,
    interval_name,
    metric_name,
    risk_name,
)
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import Bounds, Estimate, Scored, mean_interval
from fedminmax.metrics.parity import ratio
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED, SELECTED
from fedminmax.report.page import template_environment
from fedminmax.report.read_run import Run

NOT_SHOWN = "not shown"
OPEN = "Open question"
NO_CLAIM = (
    "Filled in from measurements and settings of the run. It makes no claim of compliance; whoever "
    "is responsible for the system has to check and complete it."
)
SHOWN = ("auroc", "accuracy", RISK, MISSED, FALSE_ALARMS, SELECTED, "calibration")
FAIR = (MISSED, FALSE_ALARMS, SELECTED)
# The parts of CHAI's key metrics: what each is to show, and by which metrics.
KEY_METRICS = {
    "UsefulnessUsabilityEfficacy": (
        "How well it predicts",
        ("auroc", "accuracy", RISK, "absolute_error"),
    ),
    "FairnessEquity": ("How it serves each group", FAIR),
    "SafetyReliability": (
        "Whether probabilities can be relied on",
        ("calibration", "overconfidence", "mean_error"),
    ),
}
SMALL_SHARE = 0.02


def open_question(text: str) -> str:
    """Return what somebody has to answer."""
    return f"{OPEN}: {text}"


def shown_counts(rows: Sequence[int]) -> tuple[list[str], str]:
    """Return counts and their total as the report has them, or its rule would be undone.

    >>> shown_counts([120, 7, 0])
    (['not shown', 'not shown', '0'], '127')
    >>> shown_counts([120, 30])
    (['120', '30'], '150')
    """
    counts = publishable(rows)
    shown = [NOT_SHOWN if count is None else f"{count:,}" for count in counts.shown]
    return shown, counts.total_cell


@dataclass(frozen=True)
class Known:
    """What is known of a run, as documents write it."""

    run: Run

    @property
    def results(self) -> Results:
        """The results of the model."""
        return self.run.chosen.results

    @property
    def title(self) -> str:
        """The name of the model."""
        return self.run.stated.title or f"Model of '{self.results.target}'"

    @property
    def version(self) -> str:
        """When it was made, and by which run."""
        return f"{self.results.finished}, seed {self.results.seed}"

    @property
    def features(self) -> str:
        """The columns that the model reads; "" if they are not known."""
        return ", ".join(self.run.section("features"))

    @property
    def objective(self) -> str:
        """What training minimised; "" of a model that was trained elsewhere."""
        method = self.results.method
        if self.results.is_audit:
            return ""
        card = CARDS.get(method.key)
        return f"{method.name}: {card.optimises}." if card else f"{method.name}."

    @property
    def verdict(self) -> str:
        """The verdict on the change from the standard model; "" without one."""
        found = self.run.findings
        return f"{found.headline} {found.verdict.reason}" if found.verdict else ""

    @property
    def not_assessed(self) -> str:
        """The groups that are too small; "" if there are none."""
        small = self.results.test.small_groups(self.results.groups)
        return f"Not assessed, for want of records: {', '.join(small)}." if small else ""

    @property
    def counts(self) -> str:
        """Test records by group."""
        return self._listed([own.rows for own in self.results.risk.by_group])

    @property
    def training_counts(self) -> str:
        """Training records by group; "" if nobody counted them."""
        rows = self.run.trained_rows
        return self._listed(rows) if any(rows) else ""

    def _listed(self, rows: Sequence[int]) -> str:
        shown, total = shown_counts(rows)
        lines = zip(self.results.groups, shown, strict=True)
        return f"{'; '.join(f'{name}: {count}' for name, count in lines)}; all: {total}"

    @property
    def seen(self) -> str:
        """What the server saw of the sites; "" if the method is not known."""
        card = CARDS.get(self.results.method.key)
        return what_the_server_sees(self.results, card.reveals) if card else ""

    def measures(self, names: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return metrics with their values: of all records and of groups that are compared."""
        test = self.results.test
        found = []
        for name in (own for own in names if own in test.metrics):
            metric = test.metrics[name]
            lines = [("all records", estimate(metric.overall, 3))]
            lines += [
                (group, estimate(metric.by_group[place], min(3, decimals_told(test, name, place))))
                for place, group in enumerate(self.results.groups)
                if metric.by_group[place].has_enough_rows and is_told(test, name, place)
            ]
            lines.append(("highest minus lowest group", estimate(metric.difference, 3)))
            found.append((capitalised(metric_name(name, self.results)), lines))
        return found

    def parity(self) -> list[tuple[str, str, str]]:
        """Return differences and ratios of rates between groups."""
        return [
            (
                capitalised(name.replace("_", " ")),
                estimate(own.difference, 3),
                estimate(own.ratio, 3),
            )
            for name, own in self.results.test.parity.items()
            if own.highest is not None
        ]


def annex_iv(known: Known) -> str:
    """Return the skeleton in Markdown, its open questions by point at the end."""
    tables = [markdown_table(["group", title], lines) for title, lines in known.measures(SHOWN)]
    parity = known.parity()
    if parity:
        tables.append(markdown_table(["between groups", "difference", "ratio"], parity))
    text = _rendered("annex_iv.md", known, tables=tables)
    questions, point = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            point = line.split()[1]
        elif OPEN in line:
            questions.append((point, line.split(f"{OPEN}: ")[1]))
    table = markdown_table(["point", "question"], questions)
    return f"{text}## {len(questions)} open questions\n\n{table}\n"


def chai_card(known: Known) -> str:
    """Return the model card as XML."""
    parts = [
        {
            "element": element,
            "goal": goal,
            "measured": _key_values(known, names),
            "verdict": known.verdict if names is FAIR else "",
        }
        for element, (goal, names) in KEY_METRICS.items()
    ]
    return _rendered("chai.xml", known, parts=parts)


def _key_values(known: Known, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the values of metrics by group; those of fairness with parity, or at least risks."""
    values = [
        (f"{title}, {group}", value)
        for title, lines in known.measures(names)
        for group, value in lines
    ]
    if names is FAIR:
        values += known.measures((RISK,))[0][1] if not values else []
        values += [(f"{name}, difference", value) for name, value, _ in known.parity()]
        values += [(f"{name}, ratio", value) for name, _, value in known.parity()]
    return values


def _rendered(template: str, known: Known, **more: object) -> str:
    environment = template_environment()
    environment.autoescape, environment.keep_trailing_newline = False, True
    if template.endswith(".xml"):
        environment.finalize = lambda value: escape(str(value))
    environment.filters |= {"plain": markdown_text, "json": json.dumps}
    return environment.get_template(template).render(
        known=known,
        results=known.results,
        stated=known.run.stated,
        interval=interval_name(known.results.test),
        risk=risk_name(known.results),
        no_claim=NO_CLAIM,
        **more,
    )


@dataclass(frozen=True)
class Category:
    """One line: its records, the selected and the positive ones, and whether its count is told."""

    name: str
    rows: int
    selected: float
    told: bool = True
    positives: int = 0


def impact_ratio_tables(known: Known) -> str:
    """Return the tables in Markdown."""
    results = known.results
    if SELECTED not in results.test.metrics:
        raise InputError(
            f"{known.run.chosen.folder} predicts no class of two, so nobody is selected, and Local "
            "Law 144 is about selection; give a run with two classes"
        )
    attributes = known.run.attributes
    levels = results.test.metrics[SELECTED].by_group
    # The counts of the report, or both together would tell what neither does.
    counts = publishable([own.rows for own in levels])
    positives = results.test.positives or (0,) * len(levels)
    groups = [
        Category(
            name,
            own.rows,
            own.rows * (own.value or 0.0),
            counts.shown[place] is not None,
            positives[place],
        )
        for place, (name, own) in enumerate(zip(results.groups, levels, strict=True))
    ]
    unknown = [own for own in groups if _is_unknown(own.name, attributes)]
    known_groups = [own for own in groups if own not in unknown]
    lines = [
        f"# Impact ratios: {known.title}",
        "",
        f"Selected: predicted “{results.classes[1]}”. Measured on {results.finished}. {NO_CLAIM}",
        "",
    ]
    # With those of fewer than ten records a sum would tell how many these are.
    large = [own for own in known_groups if own.rows >= LEAST]
    for number, attribute in enumerate(attributes if len(attributes) > 1 else ()):
        lines += [f"## By {attribute}", "", _table(_within(large, number, attributes)), ""]
    lines += [f"## By {' and '.join(attributes)}", "", _table(known_groups), ""]
    missing = _shown(sum(own.rows for own in unknown), told=all(own.told for own in unknown))
    lines += [f"Records of unknown category, not in the tables: {missing}.", ""]
    if counts.hidden:
        lines += [markdown_text(counts.note(results.groups, "test record")), ""]
    lines += [
        open_question("date and source of the data, and which of it is historical or test data"),
        "",
        open_question("do these attributes and categories match those of EEO-1 (sex, race)?"),
    ]
    left_out = sum(is_small(own.rows) for own in known_groups)
    if left_out and len(attributes) > 1:
        groups_of = counted(left_out, "combination")
        lines.insert(4, f"{groups_of} of {FEWER} records: in the last table alone.\n")
    return "\n".join(lines) + "\n"


def _shown(rows: int, *, told: bool) -> str:
    return f"{rows:,}" if told else NOT_SHOWN


def _is_unknown(name: str, attributes: Sequence[str]) -> bool:
    parts = name.split(" / ")
    return name == MERGED_NAME or any(f"{own} missing" in parts for own in attributes)


def _within(groups: Sequence[Category], number: int, attributes: Sequence[str]) -> list[Category]:
    """Add up the groups of each value of one attribute."""
    found: dict[str, Category] = {}
    for own in groups:
        parts = own.name.split(" / ")
        if len(parts) != len(attributes):
            raise InputError(
                f"group '{own.name}' has no value for each of {', '.join(attributes)}; rename "
                "values that contain ' / '"
            )
        before = found.get(parts[number], Category(parts[number], 0, 0.0))
        found[parts[number]] = Category(
            parts[number],
            before.rows + own.rows,
            before.selected + own.selected,
            before.told and own.told,
            before.positives + own.positives,
        )
    return list(found.values())


def _table(categories: Sequence[Category]) -> str:
    everyone = sum(own.rows for own in categories)
    rates = {
        own.name: mean_interval(
            Scored.of_sums(own.rows, own.selected, own.selected), Bounds(0.0, 1.0)
        )
        for own in categories
        if own.rows >= max(LEAST, SMALL_SHARE * everyone)
    }
    headers = ["category", "records", "selection rate", "impact ratio", "remark"]
    highest = max((own.value for own in rates.values()), default=math.nan)
    best = next((name for name, own in rates.items() if own.value == highest), "")
    lines = [_line(own, rates, best) for own in categories]
    return markdown_table(headers, lines)


def _line(own: Category, rates: Mapping[str, Estimate], best: str) -> list[str]:
    rows = _shown(own.rows, told=own.told)
    rate = rates.get(own.name)
    if rate is None:
        return [own.name, rows, NOTHING, NOTHING, "under 2% of the records"]
    selected_rows = round(own.selected)
    if is_small(own.positives) or is_small(own.rows - own.positives):
        return [own.name, rows, NOTHING, NOTHING, f"{FEWER} are of one class"]
    if is_small(selected_rows) or is_small(own.rows - selected_rows):
        return [own.name, rows, NOTHING, NOTHING, f"{FEWER} are selected, or are not"]
    if not own.told and not decimals_of_count(own.rows):
        return [own.name, rows, NOTHING, NOTHING, "would tell a count that is not shown"]
    places = 3 if own.told else decimals_of_count(own.rows)
    selected = " to ".join(f"{end:.{places}f}" for end in (rate.low, rate.high))
    selected = f"{rate.value:.{places}f} ({selected})"
    if own.name == best:
        return [own.name, rows, selected, "1.00", "highest rate" if rate.value else "none selected"]
    found = ratio(rate, rates[best])
    if math.isnan(found.value):
        return [own.name, rows, selected, NOTHING, "nobody is selected"]
    places = min(2, places)
    high = f"{found.high:.{places}f}" if math.isfinite(found.high) else "no limit"
    remark = "below four fifths" if found.value < 0.8 else ""
    shown = f"{found.value:.{places}f} ({found.low:.{places}f} to {high})"
    return [own.name, rows, selected, shown, remark]
