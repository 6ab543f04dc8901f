"""The only round loop: it yields each round, so that everything else is ordinary ``for`` code.

Progress bars, logging, checkpoints and early stopping belong to the caller's loop body.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Generic

import torch
from torch import Tensor, nn

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate, Iterates
from fedminmax.core.messages import RoundKey, Sums
from fedminmax.core.models import single_model
from fedminmax.core.validation import LossSums, ValidationRisk
from fedminmax.methods.card import judge_of
from fedminmax.methods.method import AnyMethod, JudgingState, PreparingState, StateT, is_done
from fedminmax.methods.shared.checks import check_whole, checked_method
from fedminmax.methods.shared.servers import own_risks_of
from fedminmax.training.progress import (
    Progress,
    answer_of,
    check_modes,
    draw_participants,
    initial_progress,
    members_of,
    run_round,
    with_rate_of,
)
from fedminmax.training.protocol import Federation, check_same_run


@dataclass(frozen=True, eq=False)
class Round(Generic[StateT]):
    """One finished round: what the sites returned and the progress of the run.

    Its properties, ``model`` and ``parameters`` return copies, which may be changed. ``progress``
    is the run's own record: read it, save it or resume from it, but do not write to its tensors.
    """

    number: int
    total: Sums
    _: KW_ONLY
    participants: tuple[int, ...]
    progress: Progress[StateT]
    output: Iterate
    federation: Federation = field(repr=False)
    group_names: tuple[str, ...]
    included: Tensor

    @property
    def risks(self) -> Tensor:
        """Training risk by group of the model that entered the round; NaN for missing groups."""
        return self.total.group_risks

    @property
    def weights(self) -> Tensor:
        """The adversary's weights after the round; empty for a method without adversary."""
        return self.progress.state.weights.clone()

    @property
    def worst_group(self) -> str:
        """Name of the group with the highest training risk among those seen.

        Groups that are too small for the adversary to choose do not count.
        """
        return self.group_names[int(self._judged_risks.argmax())]

    @property
    def worst_risk(self) -> float:
        """The highest training risk among the groups seen, without those that are too small."""
        return float(self._judged_risks.max())

    @property
    def _judged_risks(self) -> Tensor:
        return torch.where(self.included & (self.total.group_count > 0), self.risks, -math.inf)

    @property
    def validation_risks(self) -> Tensor:
        """Risk by group, on validation rows, of the model that entered the round; or empty."""
        return self.total.validation.risks

    @property
    def chosen(self) -> ValidationRisk | None:
        """The round that the validation rows chose so far, with its risk; None without them."""
        chosen = self.progress.iterates.best.chosen
        return chosen if chosen.is_measured else None

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the result after the round; None if nothing is.

        Proofs are about the model that the method chooses, not one chosen by validation rows.
        """
        judging = self._judging
        return judging.certificate if judging else None

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of the worst risk; None if the method does not know."""
        judging = self._judging
        return judging.remaining if judging else None

    @property
    def _judging(self) -> JudgingState | None:
        state: object = self.progress.state
        return state if isinstance(state, JudgingState) and self.answer is None else None

    def model(self, which: Iterate | None = None) -> nn.Module:
        """Return the run's current result as a torch module; a ``Mixture`` for several models.

        ``which`` selects another iterate, such as ``Iterate.LAST``.
        """
        members = self.members if which is None else self.parameters(which).unsqueeze(0)
        models = [self.federation.model(own) for own in members]
        return single_model(models, classifies=self.federation.census.classes > 0)

    def parameters(self, which: Iterate | None = None) -> Tensor:
        """Return this iterate; by default the one that validation rows chose, or the paper's."""
        if which is not None:
            return self.progress.iterates.parameters(which)
        members = self.members
        if len(members) > 1:
            raise InputError(
                f"the result is a mixture of {len(members)} models, not one vector; use model() "
                "or members"
            )
        return members[0]

    @property
    def answer(self) -> Iterate | None:
        """The iterate that the run returns; None if the method chooses by itself."""
        return answer_of(self.progress, self.output)

    @property
    def members(self) -> Tensor:
        """The models that the run returns, one per row; several form a mixture."""
        return members_of(self.progress, self.output)


def train(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    patience: int | None = None,
    resume: Progress[StateT] | None = None,
) -> Iterator[Round[StateT]]:
    """Run the method up to round ``rounds``, or until it is done, and yield each finished round.

    With validation rows the result is the model that they choose (``Iterate.BEST``). Each round
    measures the model that entered it on them; the final model of the run is measured, too.

    Args:
        federation: the sites.
        method: such as ``FedMinMax()``.
        rounds: the number of the last round, T.
        seed: randomness is a function of (seed, round, site).
        participation: share of the sites that take part in a round, C.
        patience: stop after this many rounds in a row without improvement on validation rows; None
            runs all ``rounds``.
        resume: the progress of an earlier round of the same run, to continue from there.
    """
    check_whole("train", minimum=1, rounds=rounds)
    start = initial_progress(federation, method, seed=seed, participation=participation)
    noise = federation.census.noise
    if noise is not None and rounds > noise.rounds:
        raise InputError(
            f"rounds = {rounds}, but the privacy guarantee is for {noise.rounds}; give no more, "
            "or plan more before the first one"
        )
    if patience is not None:
        check_whole("train", minimum=1, patience=patience)
        if not len(federation.validation_rows):
            raise InputError(
                f"patience = {patience}, but there are no validation rows to detect an "
                "improvement; set validation, or drop patience"
            )
    method = with_rate_of(checked_method(method), federation)
    return _rounds(federation, method, rounds, patience, _checked(resume, start))


def fit(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    patience: int | None = None,
) -> Round[StateT]:
    """Train to the end and return the last round, whose ``model()`` is the result.

    The arguments are those of ``train``, which yields every round instead.
    """
    every = train(
        federation,
        method,
        rounds=rounds,
        seed=seed,
        participation=participation,
        patience=patience,
    )
    # A round has its whole state: none is kept but the last.
    return deque(every, maxlen=1).pop()


def _checked(resume: Progress[StateT] | None, start: Progress[StateT]) -> Progress[StateT]:
    """Return the progress to resume from; refuse one of another run."""
    if resume is None:
        return start
    if not isinstance(resume, Progress):
        raise InputError(
            f"cannot resume from {type(resume).__name__}; give a Progress, such as round.progress "
            "or restored.progress"
        )
    # Before the method, whose learning rate may depend on the rows.
    check_same_run(resume.identity, start.identity, "cannot resume")
    for name in ("method", "seed", "participation"):
        before, now = getattr(resume, name), getattr(start, name)
        if before != now:
            raise InputError(f"cannot resume {name} {before} as {now}; give the same {name}")
    return resume


def _rounds(
    federation: Federation,
    method: AnyMethod[StateT],
    rounds: int,
    patience: int | None,
    progress: Progress[StateT],
) -> Iterator[Round[StateT]]:
    census, set_aside = federation.census, federation.validation_rows
    output = Iterate.BEST if len(set_aside) else method.output
    while not (
        progress.round >= rounds
        or is_out_of_patience(progress, patience)
        or is_done(method, progress.state)
    ):
        key = RoundKey(progress.seed, progress.round + 1)
        participants = draw_participants(census, progress.participation, key)
        check_modes(progress.iterates.last.device.type)
        # The caller's loop may be inside torch.no_grad().
        with torch.enable_grad():
            done = run_round(
                federation,
                method,
                progress.state,
                kept=progress.kept,
                key=key,
                participants=participants,
            )
        # The replies measured the model that entered the round.
        iterates = _judged(
            federation, method, progress, progress.state.parameters, done.total.validation
        ).add(done.state.parameters)
        progress = Progress(
            progress.method,
            progress.identity,
            seed=progress.seed,
            participation=progress.participation,
            round=key.round,
            state=done.state,
            iterates=iterates,
            gradient_evaluations=progress.gradient_evaluations + done.gradient_evaluations,
            kept=done.kept,
        )
        ends = progress.round == rounds or is_done(method, progress.state)
        if len(set_aside) and (ends or _may_be_over(progress, patience)):
            progress = _with_last_measured(federation, method, progress)
        yield Round(
            key.round,
            done.total,
            participants=participants,
            progress=progress,
            output=output,
            federation=federation,
            group_names=federation.group_names,
            included=census.included,
        )


def is_out_of_patience(progress: Progress[StateT], patience: int | None) -> bool:
    """Return whether the last models, as many as ``patience``, were no better than the best."""
    best = progress.iterates.best
    return patience is not None and best.latest.round - best.chosen.round >= patience


def _judged(
    federation: Federation,
    method: AnyMethod[StateT],
    progress: Progress[StateT],
    parameters: Tensor,
    sums: LossSums,
) -> Iterates:
    """Judge the model that entered a round by the losses on validation rows, if there are any."""
    rows, included = federation.validation_rows, federation.census.included
    state: object = progress.state
    if not len(rows) or (isinstance(state, PreparingState) and state.is_preparing):
        return progress.iterates
    own_risks = own_risks_of(state)
    if own_risks is not None:
        sums = sums.above(torch.tensor(own_risks.own, dtype=torch.float64))
    judge, has_start = judge_of(method), isinstance(state, PreparingState)
    found = judge.measure(sums, rows, included, progress.round, has_start=has_start)
    stays = has_start and judge.is_blind(rows, included)
    return progress.iterates.considered(parameters, found, stays=stays)


def _may_be_over(progress: Progress[StateT], patience: int | None) -> bool:
    """Return whether the run is over if the last model is no better than the best."""
    chosen = progress.iterates.best.chosen
    rounds = progress.round - chosen.round
    return patience is not None and chosen.is_measured and rounds >= patience


def _with_last_measured(
    federation: Federation,
    method: AnyMethod[StateT],
    progress: Progress[StateT],
) -> Progress[StateT]:
    """Measure the model after the last round on validation rows.

    The next round would request the same losses from the same sites, so a longer or resumed run
    makes the same choice as without this measurement.
    """
    key = RoundKey(progress.seed, progress.round + 1)
    participants = draw_participants(federation.census, progress.participation, key)
    order = method.order(progress.state, key)
    sums = federation.validate(order, participants)
    iterates = _judged(federation, method, progress, order.parameters, sums)
    return replace(progress, iterates=iterates)
