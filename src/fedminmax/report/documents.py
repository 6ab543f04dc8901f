"""What a run can tell the documents that others ask for; they are in the modules beside this one.

Counts are told as in the report (``findings.disclosure``): none from 1 to 9, and none that would
tell such a count by subtraction, within a document or between two. Values of groups that are too
small to compare are left out as well. What a run does not know is an open question, never a guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedminmax.config.sections import ReportSection
from fedminmax.findings.disclosure import FEWER, is_told, publishable
from fedminmax.findings.records import Results
from fedminmax.findings.text import capitalised, estimate, metric_name
from fedminmax.methods.catalogue import CARDS
from fedminmax.report.read_run import Run

NOT_SHOWN = "not shown"
OPEN = "Open question"
NO_CLAIM = (
    "Filled in from measurements and settings of the run. It makes no claim of compliance; whoever "
    "is responsible for the system has to check and complete it."
)


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
    return shown, FEWER if counts.total is None else f"{counts.total:,}"


@dataclass(frozen=True)
class Known:
    """What is known of a run, as documents write it."""

    run: Run

    @property
    def results(self) -> Results:
        """The results of the model."""
        return self.run.chosen.results

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the configuration."""
        found = self.run.settings.get(name, {})
        return found if isinstance(found, dict) else {}

    @property
    def stated(self) -> ReportSection:
        """What the user stated of the model."""
        given = self.section("report")
        known = {name: given.get(name) for name in ("title", "intended_use", "not_for")}
        return ReportSection(**known)

    @property
    def title(self) -> str:
        """The name of the model."""
        return self.stated.title or f"Model of '{self.results.target}'"

    @property
    def version(self) -> str:
        """When it was made, and by which run."""
        return f"{self.results.finished}, seed {self.results.seed}"

    @property
    def features(self) -> str:
        """The columns that the model reads; "" if they are not known."""
        return ", ".join(self.section("features"))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The sensitive attributes."""
        columns = self.section("groups").get("columns", [])
        return tuple(map(str, columns)) if isinstance(columns, list) else ()

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
        rows = [own.rows for own in self.results.risk.by_group]
        shown, total = shown_counts(rows)
        lines = zip(self.results.groups, shown, strict=True)
        return f"{'; '.join(f'{name}: {own}' for name, own in lines)}; all: {total}"

    def measures(self, names: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return metrics with their values: of all records and of groups that are compared."""
        test = self.results.test
        found = []
        for name in (own for own in names if own in test.metrics):
            metric = test.metrics[name]
            lines = [("all records", estimate(metric.overall, 3))]
            lines += [
                (group, estimate(metric.by_group[place], 3))
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
