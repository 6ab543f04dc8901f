"""The facts and sentences about one run, which terminal, card, report and summary show."""

from dataclasses import dataclass

from fedminmax.core.text import counted, listed
from fedminmax.findings.first_screen import FirstScreen, first_screen
from fedminmax.findings.own_risks import own_risks_text
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
from fedminmax.findings.verdict import merged_groups_text, small_groups_text
from fedminmax.findings.verdict_records import VerdictOfRun


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
