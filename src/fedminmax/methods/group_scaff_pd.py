"""SCAFF-PD over groups: FedMinMax with local steps that do not drift, and extrapolated risks.

Yu, Karimireddy, Ma, Jordan: Scaff-PD: communication efficient fair and robust federated learning,
2023, with weights over the groups of Papadaki et al. 2021 in place of the sites.

| symbol                            | name                            |
|-----------------------------------|---------------------------------|
| theta^r, mu^r, rho                | state.parameters, .weights, .group_shares |
| w = mu / rho                      | order.weights, first part       |
| c = sum_a mu_a grad r_a(theta^r)  | state.direction; order.weights, rest |
| r(theta^{r-1})                    | state.last_loss / state.last_count |
| kappa                             | extrapolation                   |
| eta, eta_mu, epsilon              | learning_rate, adversary_rate, min_weight |

A round has two requests, as in the paper.
0. Sites return the loss sum and the gradient sum of each group at theta^r. The server ascends
   first, mu <- Pi(mu + eta_mu (r + kappa (r - r_before))), and forms c with the new weights.
1. Sites take local steps u <- u - eta (grad F_k(u) - grad F_k(theta^r) + c) on their weighted
   loss F_k = (1/n_k) sum_i w_{a_i} loss_i; the server moves to the average of the results.

The first step goes along c at every site, and at a saddle point c = 0 and no site moves,
however different the sites are: with full batches the fixed points are FedMinMax's. One request
is not enough, because c needs the new weights, which need the risks. With gradients by group, two
are enough and only sums are revealed; the cost is one vector per group in the first reply.

The steps are constant, for which kappa = 1. Under strong convexity with modulus m the paper's
schedule is faster: gamma_{r+1} = gamma_r (1 + m tau_r), tau_r = tau_0 sqrt(gamma_0 / gamma_r),
sigma_r = gamma_r tau_r, kappa_r = sigma_{r-1} / sigma_r, for the steps tau of theta and sigma of
mu. The last iterate is returned, because extrapolation makes it converge without averaging. If only
some sites take part, kappa also amplifies the difference between them from round to round; 0 is
more stable then.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.local_epochs import batches_per_epoch, train_with_extra_gradient
from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend, zero_sums
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import ADVERSARY, FLOOR, LOCAL, RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import (
    check_keep_share,
    check_not_negative,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    expect_local_epochs,
    path_of,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, LocalTraining, local_stream


@dataclass(frozen=True, eq=False)
class GroupSCAFFPDState:
    """theta^r, mu^r, rho, the included groups, the groups' last losses, c, and the next phase.

    Between rounds ``phase`` is 0 and ``direction`` is that of the previous round.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    group_shares: Tensor
    included: Tensor
    last_loss: Tensor
    last_count: Tensor
    direction: Tensor
    phase: int


@MethodCard(
    key="group-scaff-pd",
    paper="Yu, Karimireddy, Ma, Jordan 2023 (SCAFF-PD), with groups in place of sites",
    optimises="worst group's risk, without client drift",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    minimax=True,
    weights=Weights.GROUPS,
    sources=RATE
    | ADVERSARY
    | FLOOR
    | LOCAL
    | {"extrapolation": "the paper (theta = 1 without strong convexity)"},
    requests=2,
)
@dataclass(frozen=True)
class GroupSCAFFPD(LocalTraining):
    """Minimax over groups by corrected local steps; one full batch is a step along c."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.1
    _: KW_ONLY
    extrapolation: float = 1.0
    min_weight: float = 0.0
    keep_share: float = 0.0
    name: str = "group SCAFF-PD"

    def __post_init__(self) -> None:
        check_not_negative(
            self.name,
            adversary_rate=self.adversary_rate,
            extrapolation=self.extrapolation,
            min_weight=self.min_weight,
        )
        check_keep_share(self.name, self.keep_share)
        self.check_training(self.name)

    def init(self, parameters: Tensor, census: Census) -> GroupSCAFFPDState:
        """Start as FedMinMax does; no group's loss is known yet."""
        start = FedMinMax(
            min_weight=self.min_weight, keep_share=self.keep_share, name=self.name
        ).init(parameters, census)
        nothing = zero_sums(parameters.numel(), census.groups, 0)
        return GroupSCAFFPDState(
            **vars(start),
            last_loss=nothing.group_loss,
            last_count=nothing.group_count,
            direction=nothing.step,
            phase=0,
        )

    def order(self, state: GroupSCAFFPDState, key: RoundKey) -> Order:
        """Request losses and gradients by group, for which only the model is sent."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def ask_again(self, state: GroupSCAFFPDState, key: RoundKey) -> Order | None:
        """Broadcast the new w and c for the local steps, once per round."""
        if state.phase == 0:
            return None
        weights = torch.cat([state.weights / state.group_shares, state.direction])
        return Order(key, state.parameters, weights, state.phase)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Reply to either request, starting from theta^r."""
        workspace.load(order.parameters)
        if order.phase == 0:
            return _sums_by_group(order, site, workspace)
        return self._train(order, site, workspace)

    def _train(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Take the corrected steps and return n_k (theta - theta_k) on the scale n_k."""
        examples, rows = site.examples, len(site.examples)
        message = order.weights.to(order.parameters)
        row_weights = message[: site.groups][examples.group]
        gradient, _ = weighted_gradient(
            [workspace], examples, row_weights / rows, site.rows_per_chunk
        )
        correction = workspace.in_storage_order(message[site.groups :] - gradient)
        trained = train_with_extra_gradient(
            workspace,
            examples,
            self.plan,
            local_stream(order, site),
            extra=lambda _: correction,
            row_weights=row_weights,
        )
        reply = self.with_step(zero_sums(0, site.groups, 0), order, site, trained)
        return replace(reply, gradient_evaluations=rows * (1 + self.epochs))

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Gradient sums by group, or n_k times the displacement by corrected steps."""
        rows = sender.rows
        if order.phase == 0:
            slopes = sender.limits.squared_slopes(sender.counts, reply.group_loss)
            return ExpectedReply(
                numbers=len(sender.counts) * len(order.parameters),
                scale=float(rows),
                rows=rows,
                evaluations=rows,
                reach=float(slopes.max().sqrt()),
            )
        groups = len(sender.counts)
        by_group, direction = order.weights[:groups], order.weights[groups:]
        largest = float(by_group[sender.counts > 0].max())
        steps = self.epochs * batches_per_epoch(rows, self.batch_size)
        plain = expect_local_epochs(order, sender, reply, self.plan, row_weight=largest)
        # Each step also contains c - grad F_k(theta^r), a weighted mean over all rows.
        length = float(torch.dot(sender.counts.to(torch.float64), by_group.square()).sqrt())
        return replace(
            plain,
            rows=0,
            evaluations=rows * (1 + self.epochs),
            reach=plain.reach + self.learning_rate * steps * length * path_of(sender, reply).slope,
            fixed=plain.fixed + self.learning_rate * steps * rows * float(direction.norm()),
        )

    def update(self, state: GroupSCAFFPDState, total: Sums) -> GroupSCAFFPDState:
        """Ascend along the extrapolated risks, then weigh the groups' gradients with the result.

        A missing group keeps its weight and its last losses.
        """
        seen = total.group_count > 0
        risks = total.group_risks
        before = torch.where(state.last_count > 0, state.last_loss / state.last_count, risks)
        weights = ascend_on_simplex(
            state.weights,
            risks + self.extrapolation * (risks - before),
            seen & state.included,
            rate=self.adversary_rate,
            floor=self.min_weight,
            kept=FixedShares(state.group_shares, state.included, self.keep_share).kept,
        )
        by_group = total.step.view(len(weights), -1)
        return replace(
            state,
            weights=weights,
            last_loss=torch.where(seen, total.group_loss, state.last_loss),
            last_count=torch.where(seen, total.group_count, state.last_count),
            direction=(weights / state.group_shares) @ by_group / total.scale,
            phase=1,
        )

    def update_again(self, state: GroupSCAFFPDState, total: Sums) -> GroupSCAFFPDState:
        """Move to the average of the sites' models; the round is complete."""
        return replace(state, parameters=descend(state.parameters, total), phase=0)


def _sums_by_group(order: Order, site: SiteData, workspace: Workspace) -> Sums:
    """Return each group's loss sum, and the groups' gradient sums concatenated as the step."""
    examples = site.examples
    count = torch.bincount(examples.group, minlength=site.groups).cpu()
    loss = torch.zeros(site.groups, dtype=torch.float64)
    gradients = order.parameters.new_zeros(site.groups, order.parameters.numel())
    for group in count.nonzero().squeeze(1).tolist():
        members = examples.rows((examples.group == group).nonzero().squeeze(1))
        ones = order.parameters.new_ones(len(members))
        gradient, losses = weighted_gradient([workspace], members, ones, site.rows_per_chunk)
        gradients[group] = gradient
        loss[group] = losses.sum(dtype=torch.float64)
    return replace(
        zero_sums(0, site.groups, 0),
        step=gradients.view(-1).cpu(),
        scale=float(len(examples)),
        group_loss=loss,
        group_count=count,
        gradient_evaluations=len(examples),
    )
