"""One pass over the pooled rows equals one reply per holder, for any table with empty cells."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.core.iterates import OF_EVERY_RUN, Iterate
from fedminmax.federation.train import Round, train
from fedminmax.methods.method import ServerState
from tests.contract.cases import Case, every_fast_method, every_one_step_method
from tests.problems import Problem, softmax_problems


def assert_same(fused: Round[ServerState], plain: Round[ServerState]) -> None:
    assert fused.participants == plain.participants
    for which in OF_EVERY_RUN:
        torch.testing.assert_close(
            fused.parameters(which), plain.parameters(which), rtol=1e-10, atol=1e-12
        )
    torch.testing.assert_close(fused.weights, plain.weights, rtol=1e-10, atol=1e-12)
    one, other = fused.total, plain.total
    torch.testing.assert_close(one.step, other.step, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one.group_loss, other.group_loss, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(one.holder_loss, other.holder_loss, rtol=1e-10, atol=1e-12)
    assert abs(one.scale - other.scale) <= 1e-12 * abs(other.scale)
    assert torch.equal(one.group_count, other.group_count)
    assert torch.equal(one.holder_count, other.holder_count)
    assert one.gradient_evaluations == other.gradient_evaluations


@every_one_step_method
@settings(max_examples=8)
@given(problem=softmax_problems(), participation=st.sampled_from([1.0, 0.5]))
def test_fifty_rounds_agree(case: Case, problem: Problem, participation: float) -> None:
    both = zip(
        train(problem.federation(), case.full_batch, rounds=50, participation=participation),
        train(
            problem.federation(fused=False),
            case.full_batch,
            rounds=50,
            participation=participation,
        ),
        strict=True,
    )
    for fused, plain in both:
        assert_same(fused, plain)


@every_fast_method
@settings(max_examples=4)
@given(problem=softmax_problems(), participation=st.sampled_from([1.0, 0.5]))
def test_a_few_rounds_of_looking_ahead_agree(
    case: Case, problem: Problem, participation: float
) -> None:
    *_, fused = train(problem.federation(), case.full_batch, rounds=4, participation=participation)
    *_, plain = train(
        problem.federation(fused=False), case.full_batch, rounds=4, participation=participation
    )
    one, other = fused.parameters(Iterate.LAST), plain.parameters(Iterate.LAST)
    torch.testing.assert_close(one, other, rtol=case.tolerance, atol=case.tolerance)
    assert fused.total.scale == plain.total.scale
    assert torch.equal(fused.total.group_count, plain.total.group_count)
