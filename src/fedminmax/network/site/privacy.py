"""A site's share of the noise: drawn here, from a key that never leaves, before anything is masked.

What holds whatever the server does, as long as this folder is kept:

- The noise multiplier is computed here from the promise in the plan, never taken from the server.
- The run is in the site's ledger (``privacy.jsonl``) before its first noisy answer, with all that
  it may spend; a run that would bring the table above the site's limit is refused.
- Noise is a function of the key, the terms of the run, the rows, the question and the exact order.
  The same question gets the same answer, so a run that goes on spends nothing more. Other orders
  for a round are refused by the site's log (``site.journal``); if that were lost, their noise would
  at least be another.
- A run whose key is gone is over: new noise for an order that was answered would be a new release.
- A total has the noise of all sites but the colluding ones at least: the plan's threshold for
  masked totals is not below that, or the plan is refused (``noise_fault``).
"""

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_secret
from fedminmax.core.messages import Order, Sums
from fedminmax.core.noise import Unit
from fedminmax.core.privacy import ledger
from fedminmax.core.privacy.mechanism import Mechanism
from fedminmax.methods.method import AnyMethod
from fedminmax.network.secure.layouts import mechanism_of_plan
from fedminmax.network.site.encoded_site import EncodedSite
from fedminmax.network.site.settings import SiteSettings, SmallGroups
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, digest_of
from fedminmax.network.wire.sections import Sections
from fedminmax.training.private import census_sums, own_sums, step_size_of

SPENT_FILE = "privacy.jsonl"
KEY_BYTES = 32
# Honest models and weights stay far below; with larger numbers sums could overflow, and a refusal
# for that would tell of single rows.
MAX_PARAMETER, MAX_WEIGHT = 1e6, 1e12
# For sums in single precision.
ROUNDING = 1e-3


class PrivateAnswers:
    """The noise of one site in one run."""

    def __init__(self, plan: NetworkPlan, settings: SiteSettings, folder: Path) -> None:
        self._plan, self._settings = plan, settings
        self._spent_path = folder / SPENT_FILE
        self._key_path = folder / f"{plan.run}.noise.key"
        self._line = planned_line(plan, settings)

    def check(self, rows: int) -> None:
        """Refuse a run that this site cannot take part in, before anything about rows leaves."""
        promise = self._plan.privacy
        if promise is None:
            raise RefusedError("the plan promises no privacy")
        if self._settings.small_groups is SmallGroups.MERGE and promise.unit is Unit.ROW:
            raise RefusedError(
                "this site merges small groups, and one row can decide which: that is not covered "
                "by a privacy guarantee for rows; refused"
            )
        units, name = (
            (rows, "rows") if promise.unit is Unit.ROW else (len(self._plan.sites), "sites")
        )
        if promise.delta * units >= 1.0:
            raise RefusedError(f"delta = {promise.delta:g} is not below 1 / {name}; refused")
        self._check_line(read_own_ledger(self._spent_path))

    def begin(self) -> None:
        """Write down what the run spends, or refuse it, before any answer is computed."""
        _ = self._mechanism

    def census(self, site: EncodedSite, encoding: bytes) -> Sections:
        """Return rows by group and the sum of x x', each with this site's share of the noise."""
        mechanism, linear = self._mechanism, site.workspace.linear
        counts, lower = census_sums(mechanism, site.data.examples.x, site.train_counts, linear)
        label = self._label("census", encoding, site)
        noise = mechanism.noise(label, lower, counts, of_one=True)
        noisy_counts, moment = mechanism.add_to_census(noise, counts, lower)
        return {"counts": noisy_counts, "moment": moment}

    def reply(
        self, site: EncodedSite, method: AnyMethod[Any], order: Order, reply: Sums, asked: bytes
    ) -> Sections:
        """Return a round's sums with this site's share of the noise.

        ``asked`` is the digest of all that the reply depends on besides the rows.
        """
        mechanism, groups = self._mechanism, site.data.groups
        step, losses = own_sums(mechanism, reply)
        size = step_size_of(mechanism, method, order, groups)
        _check_before_noise(mechanism, reply, step, size)
        question = f"round {order.key.round}, phase {order.phase}"
        label = self._label(question, asked, site)
        noise = mechanism.noise(label, step, losses, of_one=True)
        noisy_step, noisy_losses = mechanism.add_to_round(noise, step, losses, size)
        return {"step": noisy_step, "losses": noisy_losses}

    def forget_key(self) -> None:
        """Remove the key of a run that is over: whoever has it can remove the noise."""
        self._key_path.unlink(missing_ok=True)
        # Also in this process: cached_property keeps its value here.
        vars(self).pop("_mechanism", None)

    @cached_property
    def _mechanism(self) -> Mechanism:
        return mechanism_of_plan(self._plan, self._open())

    def _open(self) -> bytes:
        """Write down what the run spends, once, and return its key."""
        try:
            with ledger.held_ledger(self._spent_path) as entries:
                self._check_line(entries)
                if not _is_in(self._line, entries):
                    write_secret(self._key_path, secrets.token_bytes(KEY_BYTES))
                    ledger.write_line(self._spent_path, entries, self._line)
            key = self._key_path.read_bytes()
        except InputError as error:
            raise RefusedError("this site's privacy ledger cannot be used; see its log") from error
        except FileNotFoundError as error:
            raise RefusedError(
                f"run '{self._plan.run}' is over at this site, whose noise is forgotten; refused"
            ) from error
        if len(key) != KEY_BYTES:
            raise RefusedError("this site's key for its noise is damaged; start a new run")
        return key

    def _check_line(self, entries: Sequence[ledger.Spent]) -> None:
        """Refuse a run that spends too much, or goes on with another plan, sites or rows."""
        if _is_in(self._line, entries):
            before = next(entry for entry in entries if entry.run == self._line.run)
            if replace(before, day=self._line.day) != self._line:
                raise RefusedError(
                    f"run '{self._plan.run}' began here with another plan, other sites or another "
                    "table; refused, start a new run"
                )
            return
        limit = self._settings.max_epsilon
        if limit is None:
            return
        before_this, after = ledger.before_and_after(entries, self._line)
        if after > limit:
            raise RefusedError(
                f"this site's limit is epsilon {limit:g} for its table: earlier runs spent "
                f"{before_this:.3g}, with this one it would be {after:.3g}; refused"
            )

    def _label(self, question: str, asked: bytes, site: EncodedSite) -> str:
        """Return what no two different answers share."""
        terms, order = self._line.terms, hashlib.sha256(asked).hexdigest()
        return f"{terms}, {question}, order {order}, rows {site.rows_digest}"


def planned_line(plan: NetworkPlan, settings: SiteSettings) -> ledger.Spent:
    """Return what a run of this plan spends at a site, by the site's own accountant."""
    if plan.privacy is None:
        raise RefusedError("the plan promises no privacy")
    terms = repr((digest_of(plan), plan.sites, plan.secure_aggregation, reading_rules(settings)))
    try:
        return ledger.line_of(
            plan.privacy,
            data=table_digest(settings),
            run=plan.run,
            day=time.strftime("%Y-%m-%d"),
            terms=hashlib.sha256(terms.encode()).hexdigest()[:32],
        )
    except InputError as error:
        # The accountant is a package of its own.
        raise RefusedError(str(error)) from error


def read_own_ledger(path: Path) -> list[ledger.Spent]:
    """Read a site's ledger; a damaged one stops the site."""
    try:
        return ledger.read_ledger(path)
    except InputError as error:
        raise RefusedError(
            "this site's privacy ledger is damaged; its administrator has to look"
        ) from error


def reading_rules(settings: SiteSettings) -> str:
    """Return what decides which rows of the same file a site discloses, and in which groups."""
    return repr((settings.file_format, settings.small_groups.value, settings.suppress_below))


def table_digest(settings: SiteSettings) -> str:
    """Return a digest of the site's table, and of which of its rows are the site's."""
    with settings.data.open("rb") as file:
        whole = hashlib.file_digest(file, "sha256")
    whole.update(repr((settings.site_column, settings.owner)).encode())
    return whole.hexdigest()[:16]


def _is_in(line: ledger.Spent, entries: Sequence[ledger.Spent]) -> bool:
    return any(entry.run == line.run for entry in entries)


def check_range(order: Order) -> None:
    """Refuse a model or weights that no training leads to, whatever the rows."""
    for name, vector, most in (
        ("parameter", order.parameters, MAX_PARAMETER),
        ("weight", order.weights, MAX_WEIGHT),
    ):
        if len(vector) and float(vector.abs().max()) > most:
            raise RefusedError(f"the server sent a {name} above {most:g}; refused")


def _check_before_noise(
    mechanism: Mechanism, reply: Sums, step: torch.Tensor, step_size: float
) -> None:
    """Refuse to send sums that clipped rows cannot have: noise would hide the mistake."""
    rows, room = int(reply.group_count.sum()), 1.0 + ROUNDING
    units = rows if mechanism.privacy.unit is Unit.ROW else 1
    possible = float(step.norm()) <= step_size * units * room
    if mechanism.privacy.unit is Unit.ROW:
        most = mechanism.max_loss * reply.group_count.double() * room
        possible &= bool(((reply.group_loss >= 0.0) & (reply.group_loss <= most)).all())
    if not possible:
        raise RefusedError("its own sums cannot be those of clipped rows, so nothing was sent")
