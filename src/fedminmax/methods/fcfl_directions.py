"""The server's directions in FCFL: linear programmes over mixtures of gradients.

Cui, Pan, Liang, Zhang, Wang: Addressing algorithmic disparity and performance inconsistency in
federated learning, NeurIPS 2021. A direction is a mixture d = sum_j beta_j v_j of gradients, and
the model moves by -d, so <d, v> >= 0 means that the objective with gradient v does not rise, to
first order. Only the inner products of the gradients enter the programmes.

| symbol                       | name               |
|------------------------------|--------------------|
| d_l, d_g                     | loss, disparity    |
| grad r_k                     | losses[k]          |
| v_j                          | gradients[j]       |

Every programme has a solution, because the shortest mixture x has <x, v_j> >= |x|^2 for all j. If
rounding hides it from the solver, we take that mixture.
"""

import torch
from torch import Tensor

from fedminmax.core.min_norm import min_norm_weights

# The strictest that the solver offers, on inner products of which the largest is 1.
SOLVER_TOLERANCE = 1e-10


def smoothed_maximum(values: Tensor, gradients: Tensor, smoothing: float) -> Tensor:
    """Return sum_k alpha_k gradients[k], with alpha_k proportional to exp(values_k / smoothing)."""
    return torch.softmax(values / smoothing, dim=0) @ gradients


def stage_one_direction(loss: Tensor, disparity: Tensor, *, within_budget: bool) -> Tensor:
    """Lower the loss if no disparity is above budget; else the disparity, without a rise in loss.

    Within the budget the programme has no constraint, so its answer is d_l or d_g alone: the one
    that lowers the loss faster. It is d_g where <d_g, d_l> > |d_l|^2.
    """
    gradients = torch.stack([loss, disparity])
    if within_budget:
        return _steepest_mixture(gradients, loss, gradients[:0])
    return _steepest_mixture(gradients, disparity, loss.unsqueeze(0))


def stage_two_direction(losses: Tensor, disparity: Tensor) -> Tensor:
    """Lower the mean loss, while neither any holder's loss nor the disparity rises."""
    gradients = torch.cat([losses, disparity.unsqueeze(0)])
    return _steepest_mixture(gradients, losses.mean(dim=0), gradients)


def _steepest_mixture(gradients: Tensor, target: Tensor, guarded: Tensor) -> Tensor:
    """Return the mixture d with the largest <d, target> such that <d, v> >= 0 for all guarded v."""
    from scipy.optimize import linprog

    gains, guards = gradients @ target, guarded @ gradients.T
    longest = gradients.square().sum(dim=1).max()
    if float(longest) == 0.0:
        return torch.zeros_like(target)
    count = len(gradients)
    answer = linprog(
        (-gains / longest).numpy(),
        A_ub=(-guards / longest).numpy(),
        b_ub=torch.zeros(len(guarded)).numpy(),
        A_eq=torch.ones(1, count).numpy(),
        b_eq=torch.ones(1).numpy(),
        options={
            "primal_feasibility_tolerance": SOLVER_TOLERANCE,
            "dual_feasibility_tolerance": SOLVER_TOLERANCE,
        },
    )
    if answer.status != 0:
        same_for_all = torch.full((count,), 1.0 / count, dtype=torch.float64)
        return min_norm_weights(gradients @ gradients.T, same_for_all, 1.0) @ gradients
    return torch.from_numpy(answer.x) @ gradients
