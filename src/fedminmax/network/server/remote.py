"""The federation over a network: every reply is checked, and summed in the order of the sites.

An impossible reply is skipped in its round; a site that was too late is skipped for some rounds,
and then asked again if it is connected. What happened is noted for each round.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from fedminmax.core.bounds import row_limits
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.core.workspace import model_with
from fedminmax.methods.method import AnyMethod, KeepingMethod, StateT, SumsMethod, VectorMethod
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.log import RoundNotes
from fedminmax.network.server.replies import ReplyReader, SentOrder, ValidReply
from fedminmax.network.server.transport import (
    PRESENCE_TIMEOUT,
    Attendance,
    Transport,
    gather,
)
from fedminmax.network.wire.checks import (
    check_validation,
    too_large,
)
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    losses_from_bytes,
    order_to_bytes,
)
from fedminmax.training.per_site import add_up

SECONDS_BETWEEN_TRIES = 5.0
# A site may fail now and then, but honest replies never exceed limits that hold for every table.
MAX_INVALID_REPLIES = 10


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
        proves: whether its rounds are those of the proof that follows the run.
    """

    def __init__(
        self,
        agreement: Agreement,
        transport: Transport,
        run: int,
        notice: Path,
        pause: Callable[[float], None] = time.sleep,
        *,
        proves: bool = False,
    ) -> None:
        self._agreement = agreement
        self._transport = transport
        self._run = run
        self._notice = notice
        self._pause = pause
        self._proves = proves
        task = agreement.task
        self._start, self._task = task.initial_parameters, task
        self._layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
        self._attendance = Attendance(agreement.plan.site_rules)
        self._reader = ReplyReader(agreement, proves=proves)
        self._false: Counter[str] = Counter()
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

    def ask(self, method: SumsMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:
        """Send the order to these sites and add up their replies, in the sites' order."""
        return add_up(self._replies(method, order, participants))

    def ask_each(
        self, method: VectorMethod[StateT], order: Order, participants: Sequence[int]
    ) -> tuple[Sums, ...]:
        """Send the order to these sites and return their replies, in the sites' order."""
        return tuple(self._replies(method, order, participants))

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Ask these sites for the losses of the order's model on validation rows alone.

        Sites that do not reply, or send impossible losses, are skipped without waiting.
        """
        agreement, sites = self._agreement, self._agreement.plan.senders
        away = {
            **agreement.refused,
            **self._attendance.away(order.key.round),
            **self._banned(),
        }
        asked = [sites[number] for number in participants if sites[number] not in away]
        payload = {"run": self._run, "order": order_to_bytes(order)}
        answers = {answer.site: answer for answer in self._transport(asked, "validate", payload)}
        limits = row_limits(self._layers, order.parameters, self._task.loss, self._task.ridge)
        total = NO_LOSSES
        for site in asked:
            if answers[site].failure is None:
                try:
                    own = losses_from_bytes(answers[site].message, self.census.groups, site)
                    counts = agreement.validation_rows[sites.index(site)]
                    if answers[site].absent:
                        counts = counts.minimum(own.count)
                    check_validation(own, counts, limits, site)
                    if agreement.plan.secure_aggregation is None:
                        own = own.of_one_site(sites.index(site), len(sites))
                    total += own
                except RefusedError as error:
                    self._notes.refused[site] = str(error)
        return total

    def ask_keeping(
        self,
        method: KeepingMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor,
    ) -> tuple[Sums, Tensor]:
        """Add up the replies; what the sites keep stays with them, and ``kept`` as it is."""
        return add_up(self._replies(method, order, participants)), kept

    def _replies(
        self, method: AnyMethod[StateT], order: Order, participants: Sequence[int]
    ) -> list[Sums]:
        """Return all valid replies, in the sites' order; wait until there are enough."""
        site_rules, sites = self._agreement.plan.site_rules, self._agreement.plan.senders
        wanted = {sites[number]: number for number in participants}
        enough = min(self._agreement.plan.minimum_replies, len(wanted))
        message = order_to_bytes(order)
        task = self._task
        limits = row_limits(self._layers, order.parameters, task.loss, task.ridge)
        sent = SentOrder(method, order, message, wanted, limits)
        self._notes.bytes_out += len(message)
        deadline = time.monotonic() + site_rules.round_timeout
        replies: dict[str, ValidReply] = {}
        invited = self._sites_to_ask(wanted, order.key.round)
        while True:
            asked = [site for site in invited if site not in replies]
            good, false = self._ask_once(asked, sent)
            self._false.update(false.keys())
            replies |= good
            steps = {site: reply.step for site, reply in replies.items()}
            false |= too_large(steps, site_rules.max_step_ratio)
            self._notes.refused |= false
            self._check_groups_left(false, order)
            replies = {site: reply for site, reply in replies.items() if site not in false}
            if len(replies) >= enough:
                self._notice.unlink(missing_ok=True)
                self._notes.bytes_in += max(reply.size for reply in replies.values())
                return [replies[site].sums for site in wanted if site in replies]
            short = self._too_few(order.key.round, f"{len(replies)} of {len(wanted)}", enough)
            if time.monotonic() > deadline:
                raise TooFewSitesError(
                    f"{short}; stopped after {site_rules.round_timeout:g} seconds, everything is "
                    "saved: resume the run when they are back"
                )
            write_text(self._notice, f"{short}; waiting for them")
            # Too few: those who were too late are asked again, too.
            invited = [s for s in wanted if s not in {**self._agreement.refused, **self._banned()}]
            self._pause(SECONDS_BETWEEN_TRIES)

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

    def _sites_to_ask(self, wanted: Mapping[str, int], number: int) -> list[str]:
        """Return the sites to ask in this round, and note why the others are skipped."""
        reasons = dict(self._agreement.refused) | self._attendance.away(number) | self._banned()
        self._notes.refused |= {site: why for site, why in reasons.items() if site in wanted}
        return [site for site in wanted if site not in reasons]

    def _ask_once(
        self, asked: list[str], sent: SentOrder
    ) -> tuple[dict[str, ValidReply], dict[str, str]]:
        """Send the order; return the plausible replies, and why the others were refused.

        Each reply is checked as it arrives.
        """
        number = sent.order.key.round
        asked = self._there(asked, number)
        if not asked:
            return {}, {}
        seconds = {site: self._attendance.seconds_for(site) for site in asked}
        payload = {"run": self._run, "order": sent.message}
        started = time.monotonic()
        replies, false = {}, {}
        name = "certify" if self._proves else "answer"
        for answer in self._transport(asked, name, payload, seconds):
            site = answer.site
            if answer.failure is not None:
                self._notes.refused[site] = answer.failure
                if answer.late:
                    self._attendance.missed(site, number)
                continue
            self._attendance.came(site, time.monotonic() - started)
            try:
                reply = self._reader.read(answer, sent)
                replies[site] = reply
                self._notes.slowest_seconds = max(self._notes.slowest_seconds, reply.seconds)
                self._notes.refused.pop(site, None)
                self._notes.absent |= answer.absent
                self._notes.bytes_out += answer.further_bytes_out
            except RefusedError as error:
                false[site] = str(error)
        return replies, false

    def _there(self, asked: list[str], number: int) -> list[str]:
        """Return these sites, without those that were late before and are not connected now."""
        doubtful = [site for site in asked if self._attendance.missed_before(site)]
        if not doubtful:
            return asked
        seconds = dict.fromkeys(doubtful, PRESENCE_TIMEOUT)
        there = gather(self._transport(doubtful, "present", {}, seconds)).messages
        gone = [site for site in doubtful if site not in there]
        for site in gone:
            self._notes.refused[site] = f"{site} is not connected"
            self._attendance.missed(site, number)
        return [site for site in asked if site not in gone]

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
            if all(gone[place] for place in with_group):
                reasons = "; ".join(why for s, why in false.items() if sites.index(s) in with_group)
                raise TooFewSitesError(
                    f"round {order.key.round}: nobody else has group '{name}' ({reasons}); "
                    "stopped, everything before this round is saved: correct that site and resume"
                )
