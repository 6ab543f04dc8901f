"""The federation in this process: simulation, and the reference for any other federation."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.bounds import safe_rate_of
from fedminmax.core.errors import InputError
from fedminmax.core.examples import check_consistent, concatenate
from fedminmax.core.linear_structure import check_ridge
from fedminmax.core.losses import Loss
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.noise import ClippedRows
from fedminmax.core.one_step import evaluation_losses
from fedminmax.core.privacy.mechanism import Mechanism, Privacy
from fedminmax.core.randomness import Purpose, globally_seeded
from fedminmax.core.small_groups import SmallGroupRule, minimum_included
from fedminmax.core.task import (
    Task,
    check_fit,
    check_recomputed,
    check_task,
    classes_of,
    copy_model,
)
from fedminmax.core.validation import NO_LOSSES, LossSums, sum_losses
from fedminmax.core.workspace import Workspace, model_with, work_size_of
from fedminmax.methods.method import (
    AnyMethod,
    SiteData,
    StateT,
    lets_sites_keep,
    needs_each_reply,
    sums_over_rows,
    takes_one_step,
)
from fedminmax.training.model_checks import (
    check_rows_independent,
    contrasting_rows,
    draws_random_numbers,
)
from fedminmax.training.prepare import SiteInput, census_of, prepare_rows
from fedminmax.training.private import Hidden, check_draws_nothing, check_round, hidden_total, hide
from fedminmax.training.protocol import Replies
from fedminmax.training.replies import (
    NOTHING,
    PooledRows,
    add_up,
    ask_fused,
    ask_in_turn,
    pool_rows,
    rows_of,
    seeded,
    site_reply,
)


class Simulation:
    """Sites in the memory of this process.

    The federation keeps copies of the model and of the sites' rows (one copy of all rows): later
    changes to the originals do not affect a run, and nothing is written to them. Several threads
    may train in it: their rounds take turns. It can be copied and pickled.

    Args:
        model: any torch module without batch normalisation; its parameters are the start.
        loss: a loss per example, such as ``brier_loss``.
        sites: each site's ``(x, y, group)``, as three tensors or numpy arrays or as a torch
            data set of such rows, with groups numbered from 0; or each site's data frame of
            pandas or polars, all of whose columns but ``target`` and ``group`` are features.
        target: in data frames, the column of class numbers or quantities.
        group: in data frames, the column whose values define the groups, or several columns to be
            crossed.
        group_names: names for the groups; by default their numbers, or the values in data frames.
        ridge: for linear models, m of the penalty m/2 |theta|^2 that every method adds to every
            group's risk (intercepts included); risks are reported without it.
        fused: pool one-step methods into one pass; False takes the plain path for all.
        reveals: the most detailed information that the server may see about one site; with
            ``Reveals.SUMS``, as under secure aggregation, methods that need more are refused.
        minimum_group: a group with fewer rows, over all sites, is too small for an adversary to
            choose; by default none is, as in the papers.
        small: how such groups are handled; with ``SmallGroupRule.MERGE`` they become one group.
        validation: rows to choose the round: the share of its rows that each site sets aside,
            stratified by group and label, or each site's own ``(x, y, group)``. A run then
            returns ``Iterate.BEST``.
        seed: the rows set aside are a function of the seed and the site's number.
        privacy: what the server may learn of one row or one site: sites then clip what they
            send and add noise. The server knows only noisy counts, over all sites.
        noise_key: what noise is drawn from; by default the seed, which is for simulations alone:
            anyone with the key can remove the noise. To publish a model, give
            ``secrets.token_bytes(32)`` and keep it to yourself.

    >>> from fedminmax.core.losses import squared_error_loss
    >>> rows = (torch.zeros(3, 1), torch.zeros(3), torch.tensor([0, 1, 1]))
    >>> Simulation(nn.Linear(1, 1), squared_error_loss, [rows]).census.counts.tolist()
    [[1, 2]]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        sites: Iterable[SiteInput],
        *,
        target: str | None = None,
        group: str | Sequence[str] | None = None,
        group_names: Sequence[str] | None = None,
        ridge: float = 0.0,
        fused: bool = True,
        reveals: Reveals = Reveals.OWN_VECTOR,
        minimum_group: int = 0,
        small: SmallGroupRule = SmallGroupRule.BY_SIZE,
        validation: float | Iterable[SiteInput] = 0.0,
        seed: int = 0,
        privacy: Privacy | None = None,
        noise_key: bytes | None = None,
    ) -> None:
        check_task(Task(model, loss))
        # A copy: later changes to the user's model must not affect the start of a run.
        self._task = Task(copy_model(model), loss, ridge)
        check_ridge(self._task)
        start = self._task.initial_parameters
        if not isinstance(reveals, Reveals):
            raise InputError(f"reveals = {reveals!r}; give one of Reveals, such as Reveals.SUMS")
        rows = prepare_rows(
            sites,
            validation,
            start,
            target=target,
            group=group,
            group_names=group_names,
            seed=seed,
            minimum_group=minimum_group,
            small=small,
        )
        self._sites, validation_rows, counts = rows.sites, rows.validation, rows.counts
        self._group_names = rows.group_names
        self._reveals = Reveals.SUMS if privacy else reveals
        self._hidden: Hidden | None = None
        largest = max(self._sites, key=len)
        self._make_workspaces()
        with globally_seeded(0, Purpose.DROPOUT):
            for whose, parts in (("", self._sites), ("validation rows of ", validation_rows)):
                for number, examples in enumerate(parts):
                    if len(examples):
                        check_fit(self._task, examples, f"{whose}site {number}")
            check_recomputed(model, self._task.model)
            classes = classes_of(self._task, largest)
            least = minimum_included(minimum_group, small)
            self._census = census_of(rows, classes, self._workspaces[0], least)
            if privacy is not None:
                key = noise_key or f"simulation {seed}".encode()
                self._hidden = hide(privacy, self._task, rows, exact=self._census, key=key)
                self._make_workspaces()
            # Decided once: every thread splits rows the same way, so sums are reproducible.
            self._size = work_size_of(self._task, largest, torch.get_num_threads())
        first = self._workspaces[0]
        self._random = False
        # Linear layers and additive models with our losses neither draw nor mix rows.
        coded = first.linear is not None and first.linear.coded
        if not coded and (first.explicit_layers is None or first.explicit_gradient is None):
            self._random = draws_random_numbers(Task(first.model, loss), largest)
            if privacy is not None:
                check_draws_nothing(random=self._random)
            check_rows_independent(self._task, contrasting_rows(self._sites))
        # Copies on both paths: later changes to the user's tensors must not affect a run. Pooled
        # rows are copied once, and the plain path works on views of them.
        if fused and not self._random:
            self._pooled: PooledRows | None = pool_rows(self._sites, counts)
            self._sites = self._pooled.by_site()
        else:
            self._pooled = None
            self._sites = [rows.copy() for rows in self._sites]
        self._validation: PooledRows | None = None
        if any(len(rows) for rows in validation_rows):
            check_consistent([*self._sites, *validation_rows])
            self._validation = pool_rows(validation_rows, rows.validation_counts)

    def __getstate__(self) -> dict[str, Any]:
        """All but the workspaces: their parameters are views, which a copy would separate."""
        left_out = ("_workspaces", "_turn", "_working")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_workspaces()

    def _make_workspaces(self) -> None:
        self._workspaces = [Workspace(self._task, self._row_limits)]
        self._turn = Lock()
        self._working: int | None = None

    @property
    def _row_limits(self) -> ClippedRows | None:
        """What one row may add to a sum, if rows are what is hidden."""
        return None if self._hidden is None else self._hidden.row_limits

    @property
    def census(self) -> Census:
        """Rows by site and group, in a record of its own; under noise, what the server knows."""
        known = self._census if self._hidden is None else self._hidden.census
        return replace(known, counts=known.counts.clone())

    @property
    def mechanism(self) -> Mechanism:
        """The noise of a federation that makes a privacy guarantee."""
        if self._hidden is None:
            raise InputError("this federation makes no privacy guarantee; give privacy")
        return self._hidden.mechanism

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        return self._group_names

    @property
    def reveals(self) -> Reveals:
        """The most detailed information that the server can see about one site."""
        return self._reveals

    @property
    def validation_rows(self) -> Tensor:
        """Validation rows of each group over all sites; empty if there are none."""
        return NO_LOSSES.count if self._validation is None else self._validation.counts.sum(dim=0)

    @property
    def initial_parameters(self) -> Tensor:
        """theta^0, as one vector."""
        return self._task.initial_parameters

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that are concatenated in theta^0."""
        return self._task.parameter_shapes

    @cached_property
    def safe_learning_rate(self) -> float:
        """The learning rate of methods that have none: see ``core.bounds``.

        Under noise it is taken from what the server knows: the mean of x x' over all groups.
        """
        if self._hidden is not None:
            return self._hidden.rate(self._task.loss)
        rows = self._pooled.examples if self._pooled else concatenate(self._sites)
        return safe_rate_of(self._task, rows.x, rows.group)

    def model(self, parameters: Tensor) -> nn.Module:
        """Return a copy of the model with these parameters, ready to predict."""
        return model_with(self._task, parameters)

    def ask(
        self,
        method: AnyMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor = NOTHING,
    ) -> Replies:
        """Send the order to these sites; ``kept`` is all sites' private state, one row each."""
        with self._alone():
            if self._hidden is not None:
                return Replies(self._hidden_total(self._hidden, method, order), kept=kept)
            each: tuple[Sums, ...] = ()
            now = kept
            if needs_each_reply(method):
                each = tuple(self._replies(method, order, participants))
                total = add_up(each)
            elif lets_sites_keep(method):
                now = kept.clone()
                total = add_up(self._replies(method, order, participants, now))
            else:
                total = self._total(method, order, participants)
            # All sites' losses come with the total: summed in another order, they would differ in
            # the last digits from the measurement of the same model at the end of a run.
            losses = self._losses(order, participants) if order.phase == 0 else NO_LOSSES
            return Replies(replace(total, validation=losses), each, now)

    def _hidden_total(self, hidden: Hidden, method: AnyMethod[StateT], order: Order) -> Sums:
        """Return the sums over all sites that the promise allows."""
        check_round(hidden, method, order)
        everybody = self._census.occupied
        if hidden.row_limits is not None:
            replies: Iterable[Sums] = [self._total(method, order, everybody)]
        else:
            replies = self._replies(method, order, everybody)
        return hidden_total(hidden, method, order, replies, self._task.ridge)

    def _total(self, method: AnyMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:
        if takes_one_step(method) and self._pooled is not None:
            rows = len(self._pooled.examples)
            with self._size.fitting_threads(rows):
                return ask_fused(
                    method,
                    order,
                    self._pooled,
                    torch.tensor(participants),
                    workspaces=self._pass_workers(rows),
                    rows_per_chunk=self._size.rows_per_chunk,
                )
        if sums_over_rows(method) and self._pooled is not None:
            pooled = rows_of(self._pooled, torch.tensor(participants))
            present, first = pooled.examples, self._site(participants[0], None)
            everyone = replace(first, examples=present, origin=pooled.site)
            with self._size.fitting_threads(len(present)):
                return method.row_sums(order, everyone, self._pass_workers(len(present)))
        return add_up(self._replies(method, order, participants))

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Request only the losses of the order's model on these sites' validation rows."""
        with self._alone():
            return self._losses(order, participants)

    def _losses(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Return the losses on these sites' validation rows, from one pass over all of them."""
        if self._validation is None:
            return NO_LOSSES
        chosen = rows_of(self._validation, torch.tensor(participants))
        rows = chosen.examples
        seeded_pass = (
            globally_seeded(order.key.seed, Purpose.VALIDATION, order.key.round)
            if self._random
            else nullcontext()
        )
        with self._size.fitting_threads(len(rows)), seeded_pass:
            losses = evaluation_losses(
                self._pass_workers(len(rows)), order.parameters, rows, self._size.rows_per_chunk
            )
        sums = sum_losses(losses, rows.group, self._census.groups)
        if self._reveals is Reveals.SUMS:
            return sums
        by_site = sum_losses(losses, chosen.site, self._census.sites)
        return replace(sums, by_site=by_site.as_columns)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for other threads to finish their request: all of them use the same workspaces."""
        if self._working == get_ident():
            raise InputError(
                "the model or the loss calls the federation in which it is trained; give it its "
                "own federation"
            )
        with self._turn:
            self._working = get_ident()
            try:
                yield
            finally:
                self._working = None

    def _replies(
        self,
        method: AnyMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor | None = None,
    ) -> Iterator[Sums]:
        """Yield the sites' replies in order; their new private state replaces rows of ``kept``."""
        work = partial(site_reply, method, order)
        sites = (self._site(number, kept) for number in participants)
        largest = int(self._census.site_counts.max())
        with self._size.fitting_threads(largest):
            if self._random:
                replies = ask_in_turn(seeded(work, order.key), sites, self._workspaces[:1])
            else:
                replies = ask_in_turn(work, sites, self._workers(largest))
            for number, (reply, state) in zip(participants, replies, strict=True):
                if kept is not None:
                    kept[number] = state
                yield reply

    def _site(self, number: int, kept: Tensor | None) -> SiteData:
        return SiteData(
            number,
            self._sites[number],
            sites=self._census.sites,
            groups=self._census.groups,
            rows_per_chunk=self._size.rows_per_chunk,
            kept=NOTHING if kept is None else kept[number],
        )

    def _pass_workers(self, rows: int) -> list[Workspace]:
        """One worker per core for convolutions; large matrix products use all cores anyway.

        See benchmarks/results/README.md and benchmarks/round_speed.py.
        """
        if not self._workspaces[0].convolutional:
            return self._workspaces[:1]
        return self._workers(rows // self._size.threads)

    def _workers(self, rows: int) -> list[Workspace]:
        """One workspace per core if a step over this many rows is expensive enough, else one."""
        on_cpu = self._workspaces[0].flat.device.type == "cpu"
        wanted = self._size.workers(rows) if on_cpu else 1
        while len(self._workspaces) < wanted:
            self._workspaces.append(Workspace(self._task, self._row_limits))
        return self._workspaces[:wanted]
