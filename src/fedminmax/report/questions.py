"""What would help, and why it is not known whether any model could do better."""

from collections.abc import Iterator, Mapping

from fedminmax.advice.advise import advise_census
from fedminmax.core.convergence import BY_VALIDATION
from fedminmax.findings.advice import remedies
from fedminmax.findings.changes import worst_of
from fedminmax.findings.text import decimals_of, estimate, named, number, risk_name
from fedminmax.findings.training import HARDLY
from fedminmax.report.read_run import Run

# A group with less weight had no influence on the model.
NO_WEIGHT = 0.001
# Losses that are also the risk on test records, so that both can be compared.
SAME_ON_TEST_RECORDS = ("brier", "squared_error")
MAX_SUGGESTIONS = 8
NOTHING_STANDS_OUT = (
    "Nothing stands out: training has converged, and every group has enough records and more than "
    "one site."
)


def what_would_help(run: Run) -> list[str]:
    """Return what the results suggest, then what the counts of records suggest."""
    if run.chosen.results.is_audit:
        return ["Train with these groups in mind (fedminmax train), then audit both models."]
    found = [*_from_results(run), *_from_counts(run)]
    if not found:
        return [NOTHING_STANDS_OUT]
    left = len(found) - MAX_SUGGESTIONS
    return [*found[:MAX_SUGGESTIONS], *([f"{left:,} more: fedminmax advise"] if left > 0 else [])]


def _from_results(run: Run) -> Iterator[str]:
    results = run.chosen.results
    convergence = results.convergence
    if convergence and not (convergence.converged or convergence.reason == BY_VALIDATION):
        yield f"More rounds: {run.findings.model.convergence}"
    worst = worst_of(results)
    if worst is None:
        return
    name, measured = worst
    place = results.groups.index(name)
    trained = run.chosen.rounds[-1].risks[place]
    other = 'such as kind = "mlp" in [model]'
    if results.model.hidden:
        other = "such as a larger one"
    other = f"Other features, or another kind of model, {other}"
    comparable = results.loss in SAME_ON_TEST_RECORDS and trained is not None
    if comparable and measured.low is not None and (trained or 0.0) < measured.low:
        decimals = decimals_of(results)
        yield (
            f"More records of “{name}”, which is worst off: on its training records the model's "
            f"{risk_name(results)} is {number(trained, decimals)}, on test records "
            f"{estimate(measured, decimals)}. What it learned from these records does not hold for "
            "others of the group."
        )
    elif comparable:
        yield (
            f"{other}: for “{name}”, which is worst off, the model is no better on its training "
            "records than on test records, so more records of the same kind would hardly help."
        )
    elif results.proof is not None and results.proof.gap <= HARDLY:
        kind, limit = results.model.kind, results.proof.limit
        lower = "lower" if limit is None else "clearly lower"
        yield (
            f"{other}: no {kind} model on these features has a {lower} highest risk in training."
            f"{_not_protected(run, name)}"
        )


def _not_protected(run: Run, name: str) -> str:
    """Say for which groups the model was trained, if not for the one that is worst off."""
    last, groups = run.chosen.rounds[-1], run.chosen.results.groups
    if last.weights_over != "groups" or len(last.weights) != len(groups):
        return ""
    weights = dict(zip(groups, last.weights, strict=True))
    if weights[name] >= NO_WEIGHT:
        return ""
    most = sorted((own for own in groups if weights[own] >= NO_WEIGHT), key=lambda g: -weights[g])
    return (
        f" “{name}”, which is worst off on test records, had no weight in training, which was for "
        f"{named(most[:3])}: another model may serve it better."
    )


def _from_counts(run: Run) -> list[str]:
    """Return what the adviser says of the records by site and group, and of the method."""
    results = run.chosen.results
    section = run.settings.get("groups")
    size = section.get("minimum_size") if isinstance(section, Mapping) else None
    least = size if isinstance(size, int) else 0
    return remedies(advise_census(run.census, results.loss, results.method.key, least))
