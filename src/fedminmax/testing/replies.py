"""What sites reply, for any participants, on every path and over the network; and the card."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.validation import LossSums
from fedminmax.methods.card import Pace, Weights
from fedminmax.methods.method import asks_again, needs_each_reply, takes_one_step
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.wire.checks import ReportedLosses, check_losses, check_reply
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    max_reply_bytes,
    order_from_bytes,
    order_to_bytes,
    sums_from_bytes,
    sums_to_bytes,
)
from fedminmax.testing.case import (
    Case,
    Method,
    Problem,
    Rows,
    four_sites,
    require,
    require_close,
    require_equal,
    softmax_problem,
    three_sites,
)
from fedminmax.training.progress import initial_progress
from fedminmax.training.protocol import Replies
from fedminmax.training.replies import NOTHING, add_up
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train


def check_card(case: Case) -> None:
    """What the card says is what the method does."""
    card, method = case.card, case.full_batch
    unknown = card.sources.keys() - card.option_types.keys()
    require(case, not unknown, f"the card has sources for options that it has not: {unknown}")
    require(
        case,
        needs_each_reply(method) == (method.reveals is Reveals.OWN_VECTOR),
        "reveals must be OWN_VECTOR exactly if the server needs each reply (update_from_each)",
    )
    if takes_one_step(method):
        require(case, card.pace is Pace.ONE_STEP, "a method with weigh has the pace ONE_STEP")
    require(
        case,
        asks_again(method) == (card.requests > 1),
        f"the card says requests={card.requests}; give 2 exactly if the method has ask_again",
    )
    # Two groups, three sites, two classes: no two kinds of weights are equally many.
    census = Census(torch.tensor([[3, 1], [2, 2], [0, 4]]), classes=2)
    found = len(method.init(torch.zeros(4), census).weights)
    sizes = {Weights.NONE: 0, Weights.GROUPS: 2, Weights.SITES: 3, Weights.CELLS: 4}
    require(
        case,
        found == sizes[card.weights],
        f"state.weights has {found} entries, but the card says weights over {card.weights.value}",
    )


# Who is absent

ABSENT_COUNTS = [[4, 1, 0], [1, 5, 0], [1, 0, 3], [2, 2, 0]]


def check_the_absent_keep_their_weight(case: Case) -> None:
    """Not seen in a round is not risk zero: an absent player keeps its weight to the last bit.

    Group 2 lives at site 2 alone, so it is absent whenever that site is not drawn.
    """
    federation = softmax_problem(ABSENT_COUNTS, seed=4, classes=2).federation()
    counts, over = torch.tensor(ABSENT_COUNTS), case.card.weights
    weights = initial_progress(federation, case.full_batch).state.weights
    changes = 0
    for done in train(federation, case.full_batch, rounds=30, seed=1, participation=0.5):
        seen = torch.tensor([number in done.participants for number in range(4)])
        group_seen = counts[seen].sum(dim=0) > 0
        require_equal(case, done.risks.isnan(), ~group_seen, "a group without rows has no risk")
        require_equal(
            case,
            done.total.group_count,
            counts[seen].sum(dim=0),
            "group_count is the sum over the sites that took part",
        )
        if over not in (Weights.GROUPS, Weights.SITES) or not case.card.absent_keep_weight:
            continue
        present = group_seen if over is Weights.GROUPS else seen
        require_equal(
            case, done.weights[~present], weights[~present], "the absent keep their weight"
        )
        total = float(done.weights.sum())
        require(case, abs(total - 1.0) < 1e-12, f"weights add up to {total}, not to 1")
        changes += int((done.weights[present] != weights[present]).sum())
        weights = done.weights
    if over in (Weights.GROUPS, Weights.SITES) and case.card.absent_keep_weight:
        require(case, changes > 5, "the weights of those that are present do not move")


def check_participants(case: Case) -> None:
    """Half of five sites are three, without repetition, by seed and round alone."""
    problem = softmax_problem([[2, 1], [1, 2], [1, 1], [2, 2], [1, 3]], classes=2)

    def drawn(seed: int) -> list[tuple[int, ...]]:
        federation = problem.federation()
        rounds = train(federation, case.full_batch, rounds=6, seed=seed, participation=0.5)
        return [done.participants for done in rounds]

    first = drawn(3)
    right = all(len(set(own)) == 3 and list(own) == sorted(own) for own in first)
    require(case, right, f"three of five sites were expected in each round, not {first}")
    require(case, drawn(3) == first, "the same seed draws other sites")
    require(case, drawn(4) != first, "another seed draws the same sites")
    require(case, len(set(first)) > 1, "every round draws the same sites")


# Two paths, same numbers


def check_fused_equals_plain(
    case: Case, problem: Problem | None = None, participation: float = 1.0, rounds: int = 50
) -> None:
    """One pass over the pooled rows equals one reply per site; four rounds of local work do."""
    problem = problem or four_sites()
    strict = takes_one_step(case.full_batch)
    rounds, method = rounds if strict else 4, case.full_batch
    fused = train(problem.federation(), method, rounds=rounds, participation=participation)
    plain = train(
        problem.federation(fused=False), method, rounds=rounds, participation=participation
    )
    for one, other in zip(fused, plain, strict=True):
        if strict:
            _check_same_round(case, one, other)
        elif one.number == rounds:
            models = one.parameters(Iterate.LAST), other.parameters(Iterate.LAST)
            both, room = "models on both paths", case.tolerance
            require_close(case, *models, both, rtol=room, atol=room)
            require(case, one.total.scale == other.total.scale, "scales differ between paths")
            counts = one.total.group_count, other.total.group_count
            require_equal(case, *counts, "counts on both paths")


def _check_same_round(case: Case, fused: Round[Any], plain: Round[Any]) -> None:
    require(case, fused.participants == plain.participants, "participants differ between paths")
    for which in STANDARD_ITERATES:
        require_close(
            case, fused.parameters(which), plain.parameters(which), f"{which.value} model"
        )
    require_close(case, fused.weights, plain.weights, "weights")
    one, other = fused.total, plain.total
    require_close(case, one.step, other.step, "step", rtol=1e-9)
    require_close(case, one.group_loss, other.group_loss, "group_loss")
    require_close(case, one.site_loss, other.site_loss, "site_loss")
    require(case, abs(one.scale - other.scale) <= 1e-12 * abs(other.scale), "scales differ")
    require_equal(case, one.group_count, other.group_count, "group_count on both paths")
    require_equal(case, one.site_count, other.site_count, "site_count on both paths")
    evaluations = one.gradient_evaluations, other.gradient_evaluations
    require(case, evaluations[0] == evaluations[1], f"gradient evaluations: {evaluations}")


def check_replies_add_up(case: Case) -> None:
    """The reply of many is the sum of the replies of each, for any participants, in any order."""
    federation, method = three_sites().federation(), case.mini_batch
    order = method.order(initial_progress(federation, method).state, RoundKey(seed=3, round=2))
    backwards = [_ask(federation, method, order, [number]) for number in (2, 1, 0)]
    first = backwards[0]
    size = float(first.step.norm() + first.statistics.norm() + first.site_loss.norm())
    require(case, size > 1e-3, "a reply of zeros says nothing")
    _check_sum(case, _ask(federation, method, order, [0, 1, 2]), backwards)
    _check_sum(case, _ask(federation, method, order, [0, 2]), [backwards[2], backwards[0]])


def _check_sum(case: Case, total: Sums, parts: list[Sums]) -> None:
    for name in ("step", "group_loss", "group_count", "site_loss", "site_count", "statistics"):
        expected = torch.stack([getattr(part, name) for part in parts]).sum(dim=0)
        require_close(case, getattr(total, name), expected, f"the sum of {name}", rtol=0)
    for name in ("scale", "curvature", "gradient_evaluations"):
        difference = getattr(total, name) - sum(getattr(part, name) for part in parts)
        require(case, abs(difference) < 1e-12, f"{name} does not add up")


def _ask(federation: Simulation, method: Method, order: Order, participants: list[int]) -> Sums:
    """Ask a method's first question, and add up the replies."""
    kept = initial_progress(federation, method).kept
    return federation.ask(method, order, participants, kept).total


def check_the_network_takes_its_replies(case: Case) -> None:
    """Through bytes and the server's checks, rounds are those of the simulation, bit for bit."""
    problem, method = three_sites(), case.mini_batch
    for loss in (brier_loss, cross_entropy_loss):
        inner = problem.federation(fused=False, loss=loss)
        try:
            *_, sent = train(_OverBytes(inner, problem.sites, loss), method, rounds=4)
        except RefusedError as error:
            raise AssertionError(
                f"{case.label}: the server refuses an honest reply: {error}; declare in "
                "expected() what is honest, if it is not n_k times a displacement on the scale n_k"
            ) from error
        *_, plain = train(problem.federation(fused=False, loss=loss), method, rounds=4)
        require_equal(case, sent.members, plain.members, "the model after rounds over the network")


class _OverBytes:
    """A simulation in which orders and replies travel as bytes, and replies are checked."""

    def __init__(self, inner: Simulation, sites: list[Rows], loss: Loss) -> None:
        self._inner, self._loss = inner, loss
        self._lengths = [RowLengths(float((x.square().sum() + len(x)).sqrt())) for x, _, _ in sites]
        self._told: dict[int, ReportedLosses] = {}
        self.census, self.group_names = inner.census, inner.group_names
        self.initial_parameters = inner.initial_parameters
        self.parameter_shapes, self.validation_rows = inner.parameter_shapes, inner.validation_rows
        self.reveals = Reveals.OWN_VECTOR

    @property
    def safe_learning_rate(self) -> float:
        """The learning rate of methods that have none."""
        return self._inner.safe_learning_rate

    def model(self, parameters: Tensor) -> nn.Module:
        """Return the model with these parameters."""
        return self._inner.model(parameters)

    def ask(
        self,
        method: Method,
        order: Order,
        participants: Sequence[int],
        kept: Tensor = NOTHING,
    ) -> Replies:
        """Read each reply from bytes; what sites keep does not travel."""
        each = []
        for number in participants:
            replies = self._inner.ask(method, _sent(order), [number], kept)
            each.append(self._read(method, order, number, replies.total))
            kept = replies.kept
        return Replies(add_up(each), tuple(each), kept)

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Return the losses on validation rows."""
        return self._inner.validate(order, participants)

    def _read(self, method: Method, order: Order, number: int, reply: Sums) -> Sums:
        start, census, site = self.initial_parameters, self.census, f"site {number}"
        limit = max_reply_bytes(method, start, census)
        message = sums_to_bytes(reply, 0.0)
        if len(message) > limit:
            raise RefusedError(f"{site} sent {len(message)} bytes, at most {limit} are expected")
        read, _ = sums_from_bytes(message, start, groups=census.groups, limit=limit, sender=site)
        layers = [layer for layer in self.model(start).modules() if isinstance(layer, nn.Linear)]
        limits = row_limits(layers, order.parameters, self._loss)
        counts = census.counts[number]
        sender = Sender(
            number, counts, sites=census.sites, limits=limits, lengths=self._lengths[number]
        )
        check_losses(read, sender, site)
        check_reply(method, order, sender, read, site=site, before=self._told.get(number))
        self._told[number] = ReportedLosses(order.parameters, read.group_loss)
        return read


def _sent(order: Order) -> Order:
    return order_from_bytes(order_to_bytes(order), order.parameters, "the server")
