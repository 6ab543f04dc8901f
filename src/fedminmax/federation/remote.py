"""The federation over a network: every reply is checked, and added up in the order of the sites.

A reply that cannot be true is left out of its round by its site's name; a site that was too late
is left out for some rounds and then asked again. What happened is noted for each round.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from fedminmax.core.files import write_text
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.federation.agreement import Agreement
from fedminmax.federation.per_holder import add_up
from fedminmax.federation.reply_checks import check_reply, other_lengths, too_large
from fedminmax.federation.round_notes import RoundNotes
from fedminmax.federation.transport import Transport
from fedminmax.federation.wire import largest_message, order_to_bytes, sums_from_bytes
from fedminmax.federation.wire_vectors import RefusedError, checked_bytes
from fedminmax.methods.method import KeepingMethod, StateT, SumsMethod, VectorMethod

SECONDS_BETWEEN_TRIES = 5.0


class TooFewSitesError(RuntimeError):
    """Not enough sites answered for as long as the plan waits; everything so far is saved."""


class RemoteFederation:
    """The sites of an agreement, for one of its plan's runs.

    Args:
        agreement: what all sites agreed on.
        transport: how they are reached.
        run: the number of the run among the plan's.
        notice: a file that says what the run waits for, while it waits.
        pause: waits between tries when too few sites answer.
    """

    def __init__(
        self,
        agreement: Agreement,
        transport: Transport,
        run: int,
        notice: Path,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._agreement = agreement
        self._transport = transport
        self._run = run
        self._notice = notice
        self._pause = pause
        self._start = agreement.task.initial_parameters
        self._asked_again_in: dict[str, int] = {}
        self._notes = RoundNotes()

    @property
    def census(self) -> Census:
        """Rows by site and group."""
        return self._agreement.census

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        return self._agreement.encoding.group_names

    @property
    def initial_parameters(self) -> Tensor:
        """theta^0, as one vector."""
        return self._start

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that theta^0 puts one after another."""
        return self._agreement.task.parameter_shapes

    @property
    def reveals(self) -> Reveals:
        """The server sees every site's reply by itself."""
        return Reveals.OWN_VECTOR

    def take_notes(self) -> RoundNotes:
        """Return what happened since the last call, and begin anew."""
        notes, self._notes = self._notes, RoundNotes()
        return notes

    def ask(self, method: SumsMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:  # noqa: ARG002
        """Send the order to these sites and add up their replies, in the sites' order."""
        return add_up(self._replies(order, participants))

    def ask_each(
        self,
        method: VectorMethod[StateT],  # noqa: ARG002
        order: Order,
        participants: Sequence[int],
    ) -> tuple[Sums, ...]:
        """Send the order to these sites and return their replies, in the sites' order."""
        return tuple(self._replies(order, participants))

    def ask_keeping(
        self,
        method: KeepingMethod[StateT],  # noqa: ARG002
        order: Order,
        participants: Sequence[int],
        kept: Tensor,
    ) -> tuple[Sums, Tensor]:
        """Add up the replies; what the sites keep stays with them, and ``kept`` as it is."""
        return add_up(self._replies(order, participants)), kept

    def _replies(self, order: Order, participants: Sequence[int]) -> list[Sums]:
        """Return all good replies, in the sites' order; wait until they are enough."""
        patience, sites = self._agreement.plan.patience, self._agreement.plan.sites
        wanted = {sites[number]: number for number in participants}
        enough = min(self._agreement.plan.minimum_sites, len(wanted))
        message = order_to_bytes(order)
        self._notes.bytes_out = max(self._notes.bytes_out, len(message))
        deadline = time.monotonic() + patience.give_up_after
        replies: dict[str, Sums] = {}
        invited = self._invited(wanted, order.moment.round)
        while True:
            asked = [site for site in invited if site not in replies]
            replies |= self._ask_once(asked, message, wanted, order.moment.round)
            for site, reason in self._against_others(replies).items():
                del replies[site]
                self._notes.refused[site] = reason
            if len(replies) >= enough:
                self._notice.unlink(missing_ok=True)
                return [replies[site] for site in wanted if site in replies]
            reasons = "; ".join(self._notes.refused.values())
            short = (
                f"round {order.moment.round}: {len(replies)} of {len(wanted)} sites answered, "
                f"at least {enough} are needed ({reasons})"
            )
            if time.monotonic() > deadline:
                raise TooFewSitesError(
                    f"{short}; stopped after {patience.give_up_after:g} seconds, everything is "
                    "saved: resume the run when they are back"
                )
            write_text(self._notice, f"{short}; waiting for them")
            # Too few: those who were too late are asked again, too.
            invited = [site for site in wanted if site not in self._agreement.refused]
            self._pause(SECONDS_BETWEEN_TRIES)

    def _invited(self, wanted: Mapping[str, int], number: int) -> list[str]:
        """Return who is asked in this round, and note why the others are not."""
        reasons = dict(self._agreement.refused)
        for site, later in self._asked_again_in.items():
            if later > number:
                reasons[site] = f"{site} was too late and is asked again in round {later}"
        self._notes.refused |= {site: why for site, why in reasons.items() if site in wanted}
        return [site for site in wanted if site not in reasons]

    def _ask_once(
        self, asked: list[str], message: bytes, wanted: Mapping[str, int], number: int
    ) -> dict[str, Sums]:
        """Ask these sites, and return the replies that can be true."""
        if not asked:
            return {}
        answers = self._transport(asked, "answer", {"run": self._run, "order": message})
        for site, reason in answers.failures.items():
            self._notes.refused[site] = reason
        for site in answers.late:
            rounds = self._agreement.plan.patience.rounds_left_out
            self._asked_again_in[site] = number + rounds + 1
        replies = {}
        for site, answer in answers.messages.items():
            try:
                replies[site] = self._read(site, wanted[site], answer)
                self._notes.refused.pop(site, None)
                self._asked_again_in.pop(site, None)
            except RefusedError as error:
                self._notes.refused[site] = str(error)
        return replies

    def _read(self, site: str, place: int, answer: object) -> Sums:
        content = checked_bytes(answer, largest_message(self._start), site)
        reply, seconds = sums_from_bytes(content, self._start, self.census.groups, site)
        check_reply(reply, place, self.census.counts[place], site)
        self._notes.slowest_seconds = max(self._notes.slowest_seconds, seconds)
        self._notes.bytes_in = max(self._notes.bytes_in, len(content))
        return reply

    def _against_others(self, replies: Mapping[str, Sums]) -> dict[str, str]:
        """Return the sites whose replies do not fit the others', each with a reason."""
        misfits = other_lengths(replies)
        fitting = {site: reply for site, reply in replies.items() if site not in misfits}
        return misfits | too_large(fitting, self._agreement.plan.patience.largest_step_ratio)
