"""The sentence about a proof is true as printed, and says what its risk is one of."""

import re
from typing import Any

import numpy as np

from fedminmax.core.convergence import WITHIN_GAP
from fedminmax.findings.records import Results
from fedminmax.runs.remarks import certificate_text, verdict_of
from tests.runs.run_folders import GROUPS, results

LOGISTIC: dict[str, object] = {
    "model": {"kind": "logistic", "hidden": [], "members": 1},
    "loss": "cross_entropy",
}
BOUNDS = re.compile(
    r"below (\S+); this model has at most (\S+)\. .* none is below (\S+), this model has "
    r"at most (\S+) \(gap (\S+)\)"
)


def words(**changed: Any) -> str:
    content = results("FedMinMax", (0.3, 0.24), (0.03, 0.01), (150, 900), GROUPS)
    text = certificate_text(Results.model_validate(content | LOGISTIC | changed))
    assert text is not None
    return text


def test_every_printed_bound_is_true() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        upper = float(rng.uniform(0.1, 2.0))
        lower = upper * (1.0 - 10.0 ** -rng.uniform(0.5, 9.0))
        penalty = float(rng.uniform(0.0, 0.05))
        proof = {"upper": upper, "lower": lower, "penalty": penalty, "ridge": 1e-4}
        found = BOUNDS.search(words(proof=proof))
        assert found is not None
        least, ours, lowest, penalised, gap = map(float, found.groups())
        assert least <= lower - penalty
        assert lowest <= lower
        assert ours >= upper - penalty
        assert penalised >= upper
        assert gap >= (upper - lower) / upper


PROOF = {"upper": 0.5207, "lower": 0.52069, "penalty": 0.001, "ridge": 1e-4}


def test_a_mixture_with_small_groups_is_not_called_a_group() -> None:
    assert "bring the worst group's training risk (cross-entropy) below" in words(proof=PROOF)
    mixed = words(proof=PROOF, small_groups=GROUPS[:1])
    assert "worst group's" not in mixed
    assert "a mixture, which is no single group's risk" in mixed
    assert "the 1 group too small to be trained for: the share of their rows" in mixed


def test_where_rounding_limits_the_proof_both_are_said() -> None:
    far = PROOF | {"lower": 0.0}
    said = words(proof=far, gap_left=1e-8)
    assert "(gap 1)" in said
    assert "Rounding errors of these columns allow no closer proof" in said
    assert "at most 0.0001 % is left to gain" in said
    assert "Rounding errors" not in words(proof=far, gap_left=1.0)


def test_the_verdict_on_a_run_knows_its_loss() -> None:
    """Brier of a softmax is not convex, cross-entropy is."""
    found = {
        "converged": True,
        "reason": WITHIN_GAP,
        "rounds": 6,
        "measure": "worst group's risk",
        "risk": 0.3,
        "remaining": 1e-6,
    }
    content = results("FedMinMax", (0.3, 0.24), (0.03, 0.01), (150, 900), GROUPS)
    for loss, words_of in (("brier", True), ("cross_entropy", False)):
        changed = LOGISTIC | {"loss": loss, "convergence": found}
        said = verdict_of(Results.model_validate(content | changed))
        assert ("to a stationary point" in said) is words_of
