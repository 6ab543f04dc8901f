"""What the server makes of a reply, or of a masked total: every number is checked before it counts.

Under a privacy guarantee a round's total is noisy, and the server completes it with what it knows.
"""

import math
from dataclasses import dataclass, replace

from fedminmax.core.messages import Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.layouts import mechanism_of_plan
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.sites import Reply, SentOrder
from fedminmax.network.wire.checks import ReportedLosses, StepLength, check_reply, check_validation
from fedminmax.network.wire.codec import RefusedError, check_finite
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.training.private import completed, step_size_of

# Deviations that no noise will ever be off by: once in 10^15 draws.
DEVIATIONS = 8.0


@dataclass(frozen=True, eq=False)
class CheckedSums:
    """Plausible sums, the length of their step, and the bytes that they took."""

    sums: Sums
    step: StepLength
    size: int


class ReplyChecker:
    """Checks the replies to an agreement's orders, and remembers the losses that were reported."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement
        self._reported: dict[str, ReportedLosses] = {}

    def check(self, reply: Reply, sent: SentOrder, sender: str, *, absent: int) -> CheckedSums:
        """Return the sums of a reply; refuse what no honest sender could have sent.

        ``absent`` is how many sites are not in a masked total.
        """
        if self._agreement.plan.privacy is not None:
            sums = completed_sums(self._agreement, sent, reply.sums, absent)
            return CheckedSums(sums, StepLength(0.0, is_limited=True), reply.bytes_in)
        try:
            sums, step = self._checked(reply.sums, sent, sender, is_partial=absent > 0)
            return CheckedSums(sums, step, reply.bytes_in)
        except RefusedError:
            raise
        except (ArithmeticError, ValueError, RuntimeError, LookupError) as error:
            # The expectation depends on reported numbers, which must not stop the whole run.
            raise RefusedError(f"{sender} sent numbers that cannot be checked; refused") from error

    def _checked(
        self, sums: Sums, sent: SentOrder, name: str, *, is_partial: bool
    ) -> tuple[Sums, StepLength]:
        agreement, order = self._agreement, sent.order
        place, census = agreement.plan.senders.index(name), agreement.census
        sender = Sender(
            place,
            census.counts[place],
            sites=census.sites,
            limits=sent.limits,
            lengths=agreement.row_lengths[place],
            is_total=agreement.plan.secure_aggregation is not None,
            group_curvature=agreement.group_curvature,
        )
        if sent.validates:
            validation = self.check_losses(sums.validation, sent, name, is_partial=is_partial)
            any_rows = agreement.validation_rows.any()
            sums = replace(sums, validation=validation if any_rows else NO_LOSSES)
        if is_partial:
            # What other sites reported before cannot be compared with it.
            self._reported.pop(name, None)
        before = self._reported.get(name)
        step = check_reply(
            sent.method, order, sender, sums, site=name, before=before, is_partial=is_partial
        )
        if not is_partial:
            self._reported[name] = ReportedLosses(order.parameters, sums.group_loss)
        return sums, step

    def check_losses(
        self, losses: LossSums, sent: SentOrder, name: str, *, is_partial: bool
    ) -> LossSums:
        """Return losses on validation rows, of one site if they are; refuse impossible ones."""
        plan = self._agreement.plan
        place = plan.senders.index(name)
        counts = self._agreement.validation_rows[place]
        if is_partial:
            counts = counts.minimum(losses.count)
        check_validation(losses, counts, sent.limits, name)
        if plan.secure_aggregation is not None:
            return losses
        return losses.of_one_site(place, len(plan.sites))


def completed_sums(agreement: Agreement, sent: SentOrder, noisy: Sums, missing: int) -> Sums:
    """Return a round's noisy total with what the server knows; ``missing`` sites are not in it.

    Raises:
        RefusedError: no rows and no noise lead to such sums.
    """
    plan, census = agreement.plan, agreement.census
    mechanism = mechanism_of_plan(plan)
    levels, privacy = mechanism.levels, mechanism.privacy
    numbers, groups = len(noisy.step), census.groups
    # Sums cannot be longer than all rows, clipped, and their noise can make them.
    on_counts = math.sqrt(mechanism.sites) * mechanism.census_deviations_at_site()[0]
    units = float(census.counts.sum()) + math.sqrt(groups) * (DEVIATIONS + 1.0) * on_counts
    per_unit = levels.gradient / (privacy.clip * mechanism.size)
    step_size = step_size_of(mechanism, sent.method, sent.order, groups)
    longest = step_size * (units / mechanism.size + per_unit * (math.sqrt(numbers) + DEVIATIONS))
    largest = 0.5 * mechanism.max_loss * units + levels.loss * (math.sqrt(groups) + DEVIATIONS)
    for name, vector, most in (
        ("step", noisy.step, longest),
        ("losses", noisy.group_loss, largest),
    ):
        check_finite(vector, name, ALL_SITES)
        length = float(vector.norm())
        if length > most:
            raise RefusedError(
                f"{ALL_SITES} sent {name} of length {length:g}, which is at most {most:g} with "
                "their rows and noise; refused"
            )
    return completed(
        mechanism,
        sent.method,
        sent.order,
        noisy.step,
        noisy.group_loss,
        counts=census.counts[0],
        ridge=agreement.task.ridge,
        sites=len(plan.sites) - missing,
    )
