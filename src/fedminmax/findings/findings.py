"""The facts and sentences about one run, which terminal, card, report and summary show."""

from dataclasses import dataclass

from fedminmax.findings.privacy import privacy_lines
from fedminmax.findings.records import Results
from fedminmax.findings.text import capitalised
from fedminmax.findings.training import (
    certificate_text,
    convergence_of,
    cost_text,
    could_be_better,
    validation_text,
    weights_text,
)
from fedminmax.findings.verdict import Fact, facts_of, merged_groups_text, small_groups_text
from fedminmax.findings.verdict_records import VerdictOfRun


@dataclass(frozen=True)
class ModelFindings:
    """How one model was trained: has it converged, what is certified, which round was chosen."""

    results: Results
    convergence: str
    certificate: str | None
    validation: str

    @property
    def sentences(self) -> list[str]:
        """All of it, without what there is nothing to say about."""
        validation = f"{self.results.method.name}: {self.validation}" if self.validation else ""
        return [text for text in (self.convergence, self.certificate, validation) if text]


@dataclass(frozen=True)
class Findings:
    """What a run found, in words; "" and () where there is nothing to say.

    ``after_training`` is about the final weights and the cost. A baseline has no verdict.
    """

    model: ModelFindings
    baseline: ModelFindings | None
    verdict: VerdictOfRun | None
    facts: tuple[Fact, ...]
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


def findings(results: Results, baseline: Results | None = None) -> Findings:
    """Put a run's results into words, against those of its baseline if there is one."""
    tested = bool(results.test.rows)
    small = small_groups_text(results.groups, results.test) if tested else ""
    return Findings(
        _model(results),
        None if baseline is None else _model(baseline),
        results.verdict,
        tuple(facts_of(results)) if tested else (),
        " ".join(text for text in (small, merged_groups_text(results)) if text),
        could_be_better(results),
        tuple(text for text in (weights_text(results), cost_text(results)) if text),
        privacy_lines(results),
    )


def _model(results: Results) -> ModelFindings:
    return ModelFindings(
        results, convergence_of(results), certificate_text(results), validation_text(results)
    )
