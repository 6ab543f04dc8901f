"""The sentence about a proof is true as printed, and says what its risk is one of.

The model card: names of users stay text, whatever is in them.

Runs that have not converged say so; the sentences are in tests/golden/sentences.txt.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from fedminmax.config.sections import ReportSection
from fedminmax.core.convergence import WITHIN_GAP, Convergence
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.card import render_card
from fedminmax.findings.convergence import convergence_text, marked, notes_on_convergence
from fedminmax.findings.records import Results
from fedminmax.findings.training import (
    certificate_text,
    convergence_of,
    cost_text,
    own_risks_table,
    own_risks_text,
    weights_text,
)
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.shared.excess_server import OwnRisks
from tests.exports.saved_models import saved_model
from tests.hostile_names import HOSTILE
from tests.runs import run_folders
from tests.runs.run_folders import GROUPS, results

LOGISTIC: dict[str, Any] = {
    "model": {"kind": "logistic", "hidden": [], "members": 1},
    "loss": "cross_entropy",
}
BOUNDS = re.compile(
    r"below (\S+)\. This model has at most (\S+)\. .* none is below (\S+), and this model has "
    r"at most (\S+) \(optimality gap (\S+)\)"
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


def test_both_claims_of_a_tolerance_are_true_as_printed() -> None:
    rng = np.random.default_rng(1)
    claims = re.compile(
        r"as allowed; no model with at most (\S+) has a mean, penalty included, below (\S+), and "
        r"this one has at most (\S+) \(optimality gap (\S+)\)"
    )
    for kind in ("logistic", "additive") * 50:
        limit, mean = rng.uniform(0.3, 0.5), rng.uniform(0.2, 0.3)
        min_mean = mean * (1.0 - 10.0 ** -rng.uniform(2.0, 8.0))
        near = {"limit": limit, "mean": mean, "min_mean": min_mean, "upper": limit - 1e-9}
        proof = {"lower": limit / 1.005, "penalty": 0.001, "ridge": 1e-4} | near
        model = LOGISTIC["model"] | {"kind": kind}
        found = claims.search(words(proof=proof, model=model))
        assert found is not None
        allowed, least, ours, gap = map(float, found.groups())
        assert allowed <= limit
        assert least <= min_mean
        assert ours >= mean
        assert gap >= (mean - min_mean) / mean


def test_a_mixture_with_small_groups_is_not_called_a_group() -> None:
    assert "worst group's training risk (cross-entropy)" in words(proof=PROOF)
    mixed = words(proof=PROOF, small_groups=GROUPS[:1])
    assert "worst group's" not in mixed
    assert "no single group's risk" in mixed
    assert "1 group too small to be trained for" in mixed


def test_a_floor_of_the_weights_makes_it_a_mixture() -> None:
    """The option has the method's name for it: the certificate must not claim more than it may."""
    assert "min_weight" in CARDS["fedminmax-fast"].option_types
    method = {
        "key": "fedminmax-fast",
        "name": "FedMinMaxFast",
        "options": {"min_weight": 0.1},
        "rounds": 9,
    }
    said = words(proof=PROOF, method=method)
    assert "every group has a weight of at least 0.1" in said
    assert "no single group's risk" in said


def test_where_rounding_limits_the_proof_both_are_said() -> None:
    far = PROOF | {"lower": 0.0}
    said = words(proof=far, gap_left=1e-8)
    assert "(optimality gap 1)" in said
    assert "Rounding errors" in said
    assert "at most 0.0001% is left" in said
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
        said = convergence_of(Results.model_validate(content | changed))
        assert ("to a stationary point" in said) is words_of


def result(**changed: Any) -> Results:
    content = results("FedMinMax", (0.3, 0.24), (0.03, 0.01), (150, 900), GROUPS)
    return Results.model_validate(content | changed)


@pytest.mark.parametrize(
    ("distance", "fact"), [(0.0, "could also"), (0.007, "could nearly"), (0.42, "0.42 away")]
)
def test_weights_within_reach_of_the_sites_and_beyond(distance: float, fact: str) -> None:
    said = weights_text(result(reach={"weights": [0.25, 0.75], "distance": distance}))
    assert fact in said
    assert "75% on “men” and 25% on “women”" in said
    assert weights_text(result()) == cost_text(result()) == ""


def test_estimated_and_actual_cost_are_compared() -> None:
    cost = {"bytes_down": 300, "bytes_up": 2_000, "usual_rounds": [8, 12]}
    said = cost_text(result(cost=cost))
    for fact in ("100 rounds", "8 to 12", "2 kB up and 300 bytes down", "200 kB up in total"):
        assert fact in said
    said = cost_text(result(cost=cost | {"counted_down": 310, "counted_up": 1_500}))
    assert "1.5 kB up and 310 bytes down per round; expected: 2 kB up" in said
    said = cost_text(result(cost=cost | {"counted_down": 300, "counted_up": 2_000}))
    assert "expected" not in said


READER = MarkdownIt("commonmark").enable("table")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_card_of_hostile_names_has_no_markup_of_theirs(name: str) -> None:
    groups = (name, "men")
    content = run_folders.results("FedMinMax", (0.3, 0.2), (0.1, 0.1), (50, 60), groups)
    content |= {"notes": [f"columns {name}"], "warnings": [name], "target": name}
    census = CensusFile(format=1, sites=(name,), groups=groups, train=((1, 2),), test=((1, 2),))
    words = ReportSection(title=name, intended_use=name)
    card = render_card(
        Results.model_validate(content),
        saved_model(("no", "yes")).encoding,
        census=census,
        card=CARDS["fedminmax"],
        section=words,
    )
    assert "- Not for: not stated" in card
    tokens = READER.parse(card)
    kinds = {part.type for token in tokens for part in token.children or []}
    # The card's own markup: text, and the folder's name as code.
    assert kinds <= {"text", "text_special", "softbreak", "code_inline"}
    assert not [token for token in tokens if token.type.startswith("html")]
    assert sum(token.type == "heading_open" for token in tokens) == 7


FALLING = Convergence(
    converged=False,
    reason="falling",
    rounds=500,
    measure="worst group's risk",
    risk=0.2,
    slope=-2e-5,
    remaining=0.024,
    rounds_needed=4000,
)


def test_the_numbers_of_a_verdict() -> None:
    """The slope is 1% of the risk in 100 rounds, and 0.024 of 0.2 are left."""
    said = convergence_text("A", FALLING, "--epochs")
    for fact in ("not converged", "500 rounds", "falls, by 1%", "12%", "4,000 rounds (--epochs)"):
        assert fact in said


@pytest.mark.parametrize("convex", [True, False])
def test_only_a_convex_loss_has_an_optimum(*, convex: bool) -> None:
    within = replace(FALLING, converged=True, reason=WITHIN_GAP, remaining=1e-6)
    assert ("stationary point" in convergence_text("A", within, convex=convex)) is not convex


def test_a_mark_is_explained_where_it_is_used() -> None:
    mark = marked("A", converged=False)[-1]
    assert mark in notes_on_convergence([True, False])[0]
    assert marked("A", converged=True) == "A"
    assert notes_on_convergence([True, True]) == []


def looked_for(own: OwnRisks | None) -> Results:
    return Results.model_construct(
        groups=("north", "south", "few"), small_groups=("few",), loss="cross_entropy", own_risks=own
    )


def test_the_group_with_the_most_to_gain_is_named() -> None:
    known = looked_for(OwnRisks((0.5, 0.4, 0.9), (0.5, 0.3, 0.1)))
    text = own_risks_text(known)
    assert "“south” (0.4000), 0.1000 is avoidable" in text
    assert "75%" in text
    assert "few" not in text
    table = own_risks_table(known)
    assert table is not None
    assert [line[0] for line in table.lines] == ["north", "south"]
    assert table.lines[1] == ("south", "0.4000", "0.3000", "75%")


def test_nothing_is_said_if_nobody_looked_and_no_group_is_named_if_none_can_gain() -> None:
    assert own_risks_text(looked_for(None)) == ""
    assert own_risks_table(looked_for(None)) is None
    text = own_risks_text(looked_for(OwnRisks((0.5, 0.4, 0.9), (0.5, 0.4, 0.1))))
    assert "For no group" in text
