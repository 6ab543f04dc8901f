"""The federation over a network: every reply is checked, and summed in the order of the sites.

An impossible reply, or masked total, is skipped in its round. What happened is noted for each
round. Under a privacy guarantee a round's total is noisy, and the server completes it.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedminmax.core.bounds import row_limits_at
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.core.workspace import model_with
from fedminmax.methods.method import AnyMethod, StateT
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.layouts import mechanism_of_plan
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.log import RoundNotes
from fedminmax.network.server.masked_sites import Sites
from fedminmax.network.server.sites import Reply, SentOrder, validation_query
from fedminmax.network.wire.checks import (
    ReportedLosses,
    StepLength,
    check_reply,
    check_validation,
    too_large,
)
from fedminmax.network.wire.codec import RefusedError, check_finite
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.network.wire.values import Pairs
from fedminmax.training.private import completed, step_size_of
from fedminmax.training.protocol import Replies
from fedminmax.training.replies import NOTHING, add_up

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
        counts = self._agreement.validation_rows[plan.senders.index(name)]
        if is_partial:
            counts = counts.minimum(losses.count)
        check_validation(losses, counts, sent.limits, name)
        if plan.secure_aggregation is not None:
            return losses
        return losses.of_one_site(plan.senders.index(name), len(plan.sites))


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


SECONDS_BETWEEN_TRIES = 5.0
# A site may fail now and then, but honest replies never exceed limits that hold for every table.
MAX_INVALID_REPLIES = 10


class TooFewSitesError(RuntimeError):
    """Not enough sites answered for as long as the plan waits; everything so far is saved."""


class RemoteFederation:
    """The sites of an agreement, for one of its plan's runs.

    Args:
        agreement: what all sites agreed on.
        sites: how they are asked.
        run: the number of the run among the plan's.
        notice: a file that says what the run waits for, while it waits.
        proves: whether its rounds are those of the proof that follows the run.
        pairs: those of the question that smoothing is chosen from; None for rounds of a run.
    """

    def __init__(
        self,
        agreement: Agreement,
        sites: Sites,
        run: int,
        notice: Path,
        *,
        proves: bool = False,
        pairs: Pairs | None = None,
    ) -> None:
        self._agreement = agreement
        self._sites = sites
        self._run = run
        self._notice = notice
        self._proves, self._pairs = proves, pairs
        self._task, self._group_names = agreement.task, agreement.encoding.group_names
        self._checker = ReplyChecker(agreement)
        self._false: Counter[str] = Counter()
        self._notes = RoundNotes()

    @property
    def census(self) -> Census:
        """Rows by site and group."""
        return self._agreement.census

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        return self._group_names

    @property
    def initial_parameters(self) -> Tensor:
        """theta^0, as one vector."""
        return self._task.initial_parameters

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that theta^0 puts one after another."""
        return self._task.parameter_shapes

    @property
    def validation_rows(self) -> Tensor:
        """Validation rows of each group over all sites; empty if there are none at all."""
        rows = self._agreement.validation_rows
        return rows.sum(dim=0) if rows.any() else NO_LOSSES.count

    @property
    def reveals(self) -> Reveals:
        """The server sees every site's reply by itself, unless sums are masked."""
        masked = self._agreement.plan.secure_aggregation is not None
        return Reveals.SUMS if masked else Reveals.OWN_VECTOR

    @property
    def safe_learning_rate(self) -> float:
        """The sites agreed on it before the first round, if a run of the plan needs one."""
        raise InputError("the plan has a method without learning rate; set it in [method]")

    def model(self, parameters: Tensor) -> nn.Module:
        """Return a copy of the model with these parameters, ready to predict."""
        return model_with(self._task, parameters)

    def take_notes(self) -> RoundNotes:
        """Return what happened since the last call, and begin anew."""
        notes, self._notes = self._notes, RoundNotes()
        return notes

    def ask(
        self,
        method: AnyMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor = NOTHING,
    ) -> Replies:
        """Send the order to these sites; what they keep stays with them, and ``kept`` as it is."""
        each = tuple(self._replies(method, order, participants))
        return Replies(add_up(each), each, kept)

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Ask these sites for the losses of the order's model on validation rows alone.

        Sites that do not reply, or send impossible losses, are skipped without waiting.
        """
        plan = self._agreement.plan
        away = self._left_out(order.key.round)
        asked = [
            plan.senders[number] for number in participants if plan.senders[number] not in away
        ]
        sent = self._sent(plan.runs[self._run].build(), order)
        received = self._sites.query(validation_query(self._sites.layouts, sent), asked)
        self._notes.refused |= received.unreadable
        total = NO_LOSSES
        for sender, losses in received.records.items():
            try:
                partial = len(received.absent) > 0
                total += self._checker.check_losses(losses, sent, sender, is_partial=partial)
            except RefusedError as error:
                self._notes.refused[sender] = str(error)
        return total

    def _sent(self, method: AnyMethod[Any], order: Order) -> SentOrder:
        set_aside = len(self._agreement.validation_rows) > 0
        return SentOrder(
            self._run,
            method,
            order,
            self.census,
            row_limits_at(self._task, order.parameters),
            proves=self._proves,
            validates=set_aside and order.phase == 0 and not self._proves and self._pairs is None,
            pairs=self._pairs,
        )

    def _replies(
        self, method: AnyMethod[StateT], order: Order, participants: Sequence[int]
    ) -> list[Sums]:
        """Return all valid replies, in the sites' order; wait until there are enough."""
        plan, number = self._agreement.plan, order.key.round
        wanted = [plan.senders[participant] for participant in participants]
        enough = min(plan.minimum_replies, len(wanted))
        sent = self._sent(method, order)
        self._notes.bytes_out += len(sent.message)
        deadline = time.monotonic() + plan.site_rules.round_timeout
        replies: dict[str, CheckedSums] = {}
        away = self._left_out(number)
        self._notes.refused |= {site: why for site, why in away.items() if site in wanted}
        while True:
            asked = [site for site in wanted if site not in away and site not in replies]
            checked, false = self._ask_once(asked, sent)
            self._false.update(false.keys())
            replies |= checked
            steps = {site: reply.step for site, reply in replies.items()}
            false |= too_large(steps, plan.site_rules.max_step_ratio)
            self._notes.refused |= false
            self._check_groups_left(false, order)
            replies = {site: reply for site, reply in replies.items() if site not in false}
            if len(replies) >= enough:
                self._notice.unlink(missing_ok=True)
                self._notes.bytes_in += max(reply.size for reply in replies.values())
                return [replies[site].sums for site in wanted if site in replies]
            short = self._too_few(number, f"{len(replies)} of {len(wanted)}", enough)
            if time.monotonic() > deadline:
                raise TooFewSitesError(
                    f"{short}; stopped after {plan.site_rules.round_timeout:g} seconds, everything "
                    "is saved: resume the run when they are back"
                )
            write_text(self._notice, f"{short}; waiting for them")
            # Too few: those who were too late are asked again, too.
            away = {**self._agreement.refused, **self._banned()}
            time.sleep(SECONDS_BETWEEN_TRIES)

    def _left_out(self, number: int) -> dict[str, str]:
        """Return the sites that are not asked in this round, each with the reason."""
        return {**self._agreement.refused, **self._sites.away(number), **self._banned()}

    def _ask_once(
        self, asked: list[str], sent: SentOrder
    ) -> tuple[dict[str, CheckedSums], dict[str, str]]:
        """Send the order; return the plausible replies, and why others cannot be true."""
        received, notes = self._sites.ask(sent, asked), self._notes
        notes.refused |= received.failures
        checked, false = {}, dict(received.unreadable)
        for site, reply in received.records.items():
            try:
                absent = len(received.absent)
                checked[site] = self._checker.check(reply, sent, site, absent=absent)
            except RefusedError as error:
                false[site] = str(error)
                continue
            notes.slowest_seconds = max(notes.slowest_seconds, reply.seconds)
            notes.refused.pop(site, None)
            notes.absent |= received.absent
            notes.bytes_out += reply.bytes_out
        return checked, false

    def _too_few(self, number: int, answered: str, enough: int) -> str:
        """Say what a round waits for."""
        reasons = "; ".join(self._notes.refused.values())
        masked = self._agreement.plan.secure_aggregation
        if masked is not None:
            return f"round {number}: no total over at least {masked.threshold} sites ({reasons})"
        return (
            f"round {number}: {answered} sites answered, at least {enough} are needed ({reasons})"
        )

    def _banned(self) -> dict[str, str]:
        """Return the sites that are no longer asked, because no honest site fails this often."""
        return {
            site: f"{site} sent {MAX_INVALID_REPLIES} impossible replies; ignored from now on"
            for site, times in self._false.items()
            if times >= MAX_INVALID_REPLIES
        }

    def _check_groups_left(self, false: Mapping[str, str], order: Order) -> None:
        """Stop if the refused sites are all that have a group: the run is for that group, too."""
        if not false:
            return
        if self._agreement.plan.secure_aggregation is not None:
            raise TooFewSitesError(
                f"round {order.key.round}: {'; '.join(false.values())}; masked sums do not show "
                "whose numbers are false; stopped, everything before this round is saved"
            )
        sites = self._agreement.plan.senders
        lost = {*false, *self._agreement.refused, *self._banned()}
        gone = [site in lost for site in sites]
        for group, name in enumerate(self.group_names):
            with_group = self.census.counts[:, group].nonzero().squeeze(1).tolist()
            if all(gone[site] for site in with_group):
                reasons = "; ".join(why for s, why in false.items() if sites.index(s) in with_group)
                raise TooFewSitesError(
                    f"round {order.key.round}: nobody else has group '{name}' ({reasons}); "
                    "stopped, everything before this round is saved: correct that site and resume"
                )
