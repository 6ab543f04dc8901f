"""Runs that have not converged say so; the sentences are in tests/golden/sentences.txt."""

from dataclasses import replace

import pytest

from fedminmax.core.convergence import WITHIN_GAP, Convergence
from fedminmax.findings.training import convergence_text, marked, notes_on_convergence

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
    """The slope is 1 % of the risk in 100 rounds, and 0.024 of 0.2 are left."""
    said = convergence_text("A", FALLING, "--epochs")
    for fact in ("not converged", "500 rounds", "falls, by 1 %", "12 %", "4,000 rounds (--epochs)"):
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
