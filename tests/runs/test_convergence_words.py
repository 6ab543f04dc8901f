"""Runs that have not converged say so, in a sentence that names the reason and what to do."""

from dataclasses import replace

import pytest

from fedminmax.core.convergence import WITHIN_GAP, Convergence
from fedminmax.runs.convergence import verdict

FALLING = Convergence(
    converged=False,
    reason="falling",
    rounds=500,
    measure="worst group's risk",
    risk=0.2,
    slope=-2e-5,
    remaining=0.024,
)
TOO_FEW = Convergence(
    converged=False, reason="too few rounds", rounds=5, measure="worst group's risk"
)
MORE = "It may need many more rounds (--rounds)."


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            replace(FALLING, converged=True, reason="converged", remaining=1e-6),
            (
                "A has converged: its worst group's risk in training is within 0.1 % of its limit, "
                "as far as 500 rounds show."
            ),
        ),
        (
            replace(FALLING, rounds_needed=4000),
            (
                "A has not converged after 500 rounds: its worst group's risk in training still "
                "falls, by 1 % in 100 rounds, and may be about 12 % from its limit. It may need "
                "about 4,000 rounds (--rounds)."
            ),
        ),
        (
            replace(FALLING, remaining=0.19),
            (
                "A has not converged after 500 rounds: its worst group's risk in training still "
                "falls, "
                f"by 1 % in 100 rounds, and may be far from its limit. {MORE}"
            ),
        ),
        (
            replace(FALLING, reason="rising", slope=2e-5),
            (
                "A has not converged after 500 rounds: its worst group's risk in training still "
                "rises, "
                f"by 1 % in 100 rounds, and may be about 12 % from its limit. {MORE}"
            ),
        ),
        (
            replace(FALLING, reason="swinging"),
            (
                "A has not converged after 500 rounds: its worst group's risk in training swings "
                f"by about 12 %. {MORE}"
            ),
        ),
        (
            replace(FALLING, reason="averaging"),
            (
                "A has not converged after 500 rounds: its model is an average that favours "
                f"early rounds, about 12 % from its limit. {MORE}"
            ),
        ),
        (
            replace(FALLING, reason="weights", weights_gap=0.01),
            (
                "A has not converged after 500 rounds: its weights see a risk 5 % below the worst "
                f"group's. {MORE}"
            ),
        ),
        (
            TOO_FEW,
            f"A has not converged as far as is known: 5 rounds are too few. {MORE}",
        ),
    ],
)
def test_every_verdict_in_words(found: Convergence, expected: str) -> None:
    assert verdict("A", found) == expected


def test_a_loss_that_is_not_convex_has_a_stationary_point() -> None:
    within = replace(FALLING, converged=True, reason=WITHIN_GAP, remaining=1e-6)
    assert verdict("A", within).startswith("A has converged after 500 rounds: further rounds")
    said = verdict("A", within, convex=False)
    assert said.startswith("A has converged to a stationary point after 500 rounds: further rounds")
    assert said.endswith("not convex in the parameters: another start may end lower.")
