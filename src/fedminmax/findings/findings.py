"""The facts and sentences about one run, which terminal, card, report and summary show."""

from dataclasses import dataclass

from fedminmax.findings import groups
from fedminmax.findings.convergence import no_gain_yet
from fedminmax.findings.privacy import privacy_lines
from fedminmax.findings.records import Results
from fedminmax.findings.training import (
    certificate_text,
    cost_text,
    could_be_better,
    validation_text,
    verdict_of,
    weights_text,
)


@dataclass(frozen=True)
class ModelFindings:
    """How one model was trained: has it converged, what is certified, which round was chosen."""

    results: Results
    verdict: str
    certificate: str | None
    validation: str

    @property
    def sentences(self) -> list[str]:
        """All of it, without what there is nothing to say about."""
        validation = f"{self.results.method.name}: {self.validation}" if self.validation else ""
        return [text for text in (self.verdict, self.certificate, validation) if text]


@dataclass(frozen=True)
class Findings:
    """What a run found, in words; "" and () where there is nothing to say.

    ``change`` says what a change is, ``story`` who was worst off and what changed, ``mistakes``
    which kind of mistake became more frequent; ``after_training`` is about the final weights and
    the cost.
    """

    model: ModelFindings
    baseline: ModelFindings | None
    change: str
    story: str
    mistakes: str
    facts: tuple[groups.Fact, ...]
    small_groups: str
    could_be_better: str
    after_training: tuple[str, ...]
    privacy: tuple[str, ...]

    @property
    def models(self) -> tuple[ModelFindings, ...]:
        """The method's model, and the baseline's if there is one."""
        return (self.model,) if self.baseline is None else (self.model, self.baseline)


def findings(results: Results, baseline: Results | None = None) -> Findings:
    """Put a run's results into words, against those of its baseline if there is one."""
    tested = bool(results.test.rows)
    small = groups.small_groups_text(results.groups, results.test) if tested else ""
    return Findings(
        _model(results),
        None if baseline is None else _model(baseline),
        _change(results, baseline) if tested else "",
        groups.story_of(results, baseline) if tested else "",
        groups.mistakes_of(results, baseline) if tested else "",
        tuple(groups.facts_of(results, baseline)) if tested else (),
        " ".join(text for text in (small, groups.merged_groups_text(results)) if text),
        could_be_better(results),
        tuple(text for text in (weights_text(results), cost_text(results)) if text),
        privacy_lines(results),
    )


def _change(results: Results, baseline: Results | None) -> str:
    if baseline is None:
        return ""
    models = (results, baseline)
    doubt = no_gain_yet(*((one.method.name, one.converged) for one in models))
    return (
        f"Change: {results.method.name} minus {baseline.method.name} on the same records; "
        f"{doubt or 'below 0 is a gain'}."
    )


def _model(results: Results) -> ModelFindings:
    return ModelFindings(
        results, verdict_of(results), certificate_text(results), validation_text(results)
    )
