"""Reading one reply of a site, or a masked total: every number is checked before it counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedminmax.core.bounds import RowLimits
from fedminmax.core.messages import Order, Sums
from fedminmax.core.validation import NO_LOSSES
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.noisy_census import completed_reply
from fedminmax.network.server.transport import Answer
from fedminmax.network.wire.checks import (
    ReportedLosses,
    StepLength,
    check_losses,
    check_reply,
    check_validation,
)
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.network.wire.messages import max_reply_bytes, sums_from_bytes


@dataclass(frozen=True, eq=False)
class SentOrder:
    """An order to some sites, as a record and as bytes, and a row's limits at its model."""

    method: AnyMethod[Any]
    order: Order
    message: bytes
    places: Mapping[str, int]
    limits: RowLimits


@dataclass(frozen=True, eq=False)
class ValidReply:
    """A plausible reply, the length of its step, its size in bytes, and the seconds it took."""

    sums: Sums
    step: StepLength
    size: int
    seconds: float


class ReplyReader:
    """Reads the replies of an agreement's sites, and remembers the losses that they reported.

    With ``proves`` the rounds are those of the proof that follows a run.
    """

    def __init__(self, agreement: Agreement, *, proves: bool) -> None:
        self._agreement = agreement
        self._proves = proves
        self._start = agreement.task.initial_parameters
        self._reported: dict[str, ReportedLosses] = {}

    def read(self, answer: Answer, sent: SentOrder) -> ValidReply:
        """Return the reply; refuse one that no honest site could have sent."""
        site, census = answer.site, self._agreement.census
        limit = max_reply_bytes(sent.method, self._start, census)
        content = checked_bytes(answer.message, limit, site)
        set_aside = self._agreement.validation_rows
        validates = len(set_aside) > 0 and sent.order.phase == 0 and not self._proves
        reply, seconds = sums_from_bytes(
            content,
            self._start,
            groups=census.groups,
            limit=limit,
            sender=site,
            validates=validates,
        )
        reply = replace(reply, rounding=answer.rounding)
        if self._agreement.plan.privacy is not None:
            missing = len(answer.absent)
            noisy = completed_reply(self._agreement, sent.method, sent.order, reply, missing)
            limited = StepLength(0.0, is_limited=True)
            return ValidReply(noisy, limited, answer.bytes or len(content), seconds)
        place = sent.places[site]
        counts, lengths = census.counts[place], self._agreement.row_lengths[place]
        is_total = self._agreement.plan.secure_aggregation is not None
        sender = Sender(
            place,
            counts,
            sites=census.sites,
            limits=sent.limits,
            lengths=lengths,
            is_total=is_total,
            group_curvature=self._agreement.group_curvature,
        )
        try:
            check_losses(reply, sender, site)
            if validates:
                reported = set_aside[place]
                if answer.absent:
                    reported = reported.minimum(reply.validation.count)
                check_validation(reply.validation, reported, sent.limits, site)
                if not set_aside.any():
                    reply = replace(reply, validation=NO_LOSSES)
                elif not is_total:
                    own = reply.validation.of_one_site(place, census.sites)
                    reply = replace(reply, validation=own)
            before, now = self._reported.get(site), sent.order
            if answer.absent:
                # A total over some of the sites: it says itself over how many rows, and what
                # others reported before cannot be compared with it.
                sender, before = replace(sender, counts=reply.group_count), None
                self._reported.pop(site, None)
            else:
                self._reported[site] = ReportedLosses(now.parameters, reply.group_loss)
            step = check_reply(sent.method, now, sender, reply, site=site, before=before)
        except RefusedError:
            raise
        except (ArithmeticError, ValueError, RuntimeError, LookupError) as error:
            # The expectation depends on reported numbers, which must not stop the whole run.
            raise RefusedError(f"{site} sent numbers that cannot be checked; refused") from error
        size = len(content) if answer.bytes is None else answer.bytes
        return ValidReply(reply, step, size, seconds)
