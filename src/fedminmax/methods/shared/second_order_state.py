"""What the server for linear models knows between two rounds (see ``second_order_server``).

While sites are missing, a ``Trial`` decides which model is returned. The risks of two candidates
cannot be compared then: each was measured on the records of other sites. But every candidate was
chosen before the sites of its round reported on it, so the mean loss of all candidates since the
model that is kept, later ones with more weight (round t has weight t), is an honest estimate. It is
an estimate of the mean of these models, whose risk is not above their mean risk where the loss is
convex (Cesa-Bianchi, Conconi, Gentile: On the generalization ability of on-line learning
algorithms, 2004); the latest candidate alone can be far worse. So that mean is returned once it
passes: the estimate must be better than the kept model by its standard error, which the differences
between rounds show, and rest on enough records. Until then the kept model is returned. Choosing the
candidate with the lowest estimate instead would choose the luckiest.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import (
    Certificate,
    Errors,
    RowSize,
    Tangents,
    cone_of,
    errors_at,
    errors_of_quadratics,
    lower_bound,
    masked_errors,
)
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Sums
from fedminmax.core.solvers.cone import nearest_in_cone
from fedminmax.core.solvers.simplex import FixedShares

# How often each player's records must have been measured on average. With half of the sites in a
# round, one in sixteen records is then still unmeasured; after a single time it is one in four.
MIN_MEASUREMENTS = 2


@dataclass(frozen=True, eq=False)
class Trial:
    """The kept model with its worst risk, and sums over the rounds of later candidates.

    ``models`` is the sum of the candidates and ``weight`` that of their weights. By player,
    ``losses`` and ``rows`` are the weighted sums, ``products`` [3, m] the sums of their products
    (losses with losses, losses with rows, rows with rows), ``measured`` the rows without weights,
    which count again whenever they are measured, and ``rounds`` how many rounds had any.
    """

    kept: Tensor
    risk: float
    models: Tensor
    weight: float
    losses: Tensor
    rows: Tensor
    products: Tensor
    measured: Tensor
    rounds: Tensor

    def with_round(self, number: int, model: Tensor, losses: Tensor, counts: Tensor) -> "Trial":
        """Add what a round reports of its candidate."""
        weighted, rows = number * losses, number * counts.double()
        return replace(
            self,
            models=self.models + number * model.double().cpu(),
            weight=self.weight + number,
            losses=self.losses + weighted,
            rows=self.rows + rows,
            products=self.products + torch.stack([weighted**2, weighted * rows, rows**2]),
            measured=self.measured + counts,
            rounds=self.rounds + (counts > 0),
        )

    def is_passed(self, counts: Tensor, included: Tensor) -> bool:
        """Return whether the candidates' mean is better for all players that count."""
        if not bool((self.measured >= MIN_MEASUREMENTS * counts)[included].all()):
            return False
        risks = self.losses / self.rows
        of_losses, of_both, of_rows = self.products
        deviations = (of_losses - 2.0 * risks * of_both + risks**2 * of_rows).clamp(min=0.0)
        errors = (deviations * self.rounds / (self.rounds - 1.0)).sqrt() / self.rows
        return float((risks + errors)[included].max()) < self.risk

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the candidates."""
        return (self.models / self.weight).to(self.kept)


def new_trial(kept: Tensor, players: int, risk: float = float("inf")) -> Trial:
    """Begin to compare candidates with this model; its risk is unknown before the first round."""
    none = torch.zeros(players, dtype=torch.float64)
    return Trial(
        kept,
        risk,
        models=torch.zeros_like(kept, dtype=torch.float64, device="cpu"),
        weight=0.0,
        losses=none,
        rows=none,
        products=none.repeat(3, 1),
        measured=none,
        rounds=none,
    )


# Maximum number of second derivatives that a server stores: 160 MB.
MAX_CURVATURE = 20_000_000
FIRST_DAMPING = 1e-3
PREDICTION_FACTOR = 100.0
# Of the risk: if a further round leaves a proof farther off, that is due to rounding.
NOTHING_LEFT = 1e-7


@dataclass(frozen=True, eq=False)
class Allowed:
    """The models whose worst risk is at most a limit, and the one of lowest mean among those known.

    Attributes:
        model: the model, with its ``worst`` and ``mean`` risk, rounded up, penalty included.
        risks: the players' risks there.
        tolerance: by how much of its minimum the worst risk may be above it; 0 is exact minimax.
        limit: c; infinite until the second phase begins.
        target: what candidates aim at. With ``margin``, it is below the limit by so little that the
            mean hardly changes, and by enough to keep candidates within the limit.
        keep_share: k, with which the last candidate was found (see ``second_order_step``).
        lower: no model within the limit has a lower mean.
    """

    model: Tensor
    risks: Tensor
    tolerance: float
    limit: float = math.inf
    target: float = math.inf
    margin: float = 0.0
    keep_share: float = 0.0
    worst: float = math.inf
    mean: float = math.inf
    lower: float = -math.inf

    @property
    def is_sought(self) -> bool:
        """Whether the second phase has begun."""
        return math.isfinite(self.limit)


@dataclass(frozen=True, eq=False)
class Offsets:
    """What is added to the players' risks, so that the highest sum is the highest excess.

    With o_a what player a's own best model reaches (``own_models``), the ``values`` [m] are
    max_b o_b - o_a: no sum is negative, and the highest one is max_b o_b, ``highest``, above the
    highest excess r_a - o_a. So what is written for risks holds. Players that may not be chosen
    have the value 0. Without own models (``is_known``) there is nothing to add.
    """

    values: Tensor
    highest: float = 0.0
    is_known: bool = False

    def of_mix(self, fixed: FixedShares) -> float:
        """Return what is added to the highest mixture that an adversary can choose."""
        return fixed.free * self.highest + float(fixed.kept @ self.values)

    def of_mean(self, fixed: FixedShares) -> float:
        """Return what is added to the mean risk."""
        return float(fixed.shares @ self.values)


@dataclass(frozen=True, eq=False)
class SecondOrderState:
    """The next candidate, the best model so far with what is known there, and the bounds.

    ``damping`` is the trust region's, relative to ``scale``, the largest curvature seen for each
    parameter; both are in coordinates around the columns' ``centre`` (see ``max_of_quadratics``).
    ``promised`` is the predicted decrease at the next candidate, within the trust region, and
    ``left`` the most that the quadratics leave to be gained by any step; for squared error, which
    determines the next candidate's risk, by any step from there. ``tangents`` are
    linear lower bounds on the players' risks. ``upper`` and ``lower`` bound the game's value;
    lower is minus infinity if nothing is proved. ``answer`` is the worst risk of the selected
    model, with its penalty; infinite unless it was measured on all rows. ``seen`` has the rows
    behind each player's risk, weighted by round, and ``repeats`` is how often in a row the
    candidate was sent again. ``trial`` decides whether candidates are returned while sites are
    missing. ``size`` determines rounding errors. ``curved`` are the weights of the one curvature of
    coded records, and ``wants_curvature`` says whether the next round's is needed;
    ``natural_curvature`` is the first one, of the natural shares. ``risks`` and ``tangents``, and
    all that is computed from them, have the ``offsets``.

    In the second phase, ``promised`` and ``left`` are about the merit and the mean of ``allowed``.
    ``is_settled`` says whether next to nothing was left before the last round already.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    best: Tensor
    structure: LinearStructure
    counts: Tensor
    fixed: FixedShares
    size: RowSize
    risks: Tensor
    slopes: Tensor
    curvature: Tensor
    centre: Tensor
    scale: Tensor
    tangents: Tangents
    damping: float
    promised: float
    left: float
    upper: float
    lower: float
    answer: float
    seen: Tensor
    repeats: int
    rounds: int
    trial: Trial
    curved: Tensor
    natural_curvature: Tensor
    allowed: Allowed
    offsets: Offsets
    wants_curvature: bool = True
    is_settled: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the risks are those of the best model on all rows."""
        return math.isfinite(self.answer)

    @property
    def proves(self) -> bool:
        """Whether sums over all rows prove bounds."""
        convex = self.structure.ridge > 0 and self.structure.is_convex
        return convex and math.isfinite(self.size.length)

    @property
    def curvature_weights(self) -> Tensor:
        """How much a record of each player adds to the one curvature of coded records [m].

        Over the players' records they are in proportion to the weights: the curvature is then that
        of the Lagrangian. The largest is 1.
        """
        per_record = self.weights / self.counts
        return per_record / per_record.max()

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the selected model; None if nothing is."""
        if not math.isfinite(self.lower) or not self.is_exact:
            return None
        ridge, answer = self.structure.ridge, self.structure.to_free(self.selected[0])
        penalty = 0.5 * ridge * float(answer @ answer)
        near, own = self.allowed, self.offsets
        added, own_risk = own.of_mix(self.fixed), own.highest if own.is_known else None
        if near.is_sought:
            of_mean = own.of_mean(self.fixed)
            return Certificate(
                near.worst - added,
                self.lower - added,
                penalty,
                ridge,
                limit=near.limit - added,
                mean=near.mean - of_mean,
                min_mean=max(near.lower - of_mean, 0.0),
                highest_own=own_risk,
            )
        worst = self.answer + self.error_at(answer).value
        return Certificate(worst - added, self.lower - added, penalty, ridge, highest_own=own_risk)

    def error_at(self, point: Tensor) -> Errors:
        """Return how far off risks are there, as the sums at the best model have them."""
        best = self.structure.to_free(self.best)
        at_best = errors_at(self.structure, self.size, float(best.norm()), float(self.risks.max()))
        return errors_of_quadratics(at_best, self.size, float((point - best).norm()), len(point))

    def worst_of(self, total: Sums) -> float:
        """Return the adversary's maximum over the risks of the next candidate, rounded up.

        It includes the penalty; players that may not be chosen keep their share.
        """
        theta = self.parameters.double().cpu()
        worst = float(self.fixed.mix(total.group_risks).max())
        worst += 0.5 * self.structure.ridge * float(theta @ theta)
        masked = masked_errors(self.structure, total.rounding, total.group_count.cpu())
        size = replace(self.size, masked=masked)
        return worst + errors_at(self.structure, size, float(theta.norm()), worst).value

    def bound_of(self, game: FixedShares, worst: float, floor: float = 0.0) -> float:
        """Return what a game's value, at most ``worst``, is proved not to be below."""
        ridge = self.structure.ridge
        cuts, cone = self.tangents.mixed(game).cuts(worst, ridge), cone_of(self.structure, worst)
        # Losses are not negative.
        return max(lower_bound(cuts, ridge, floor, cone), 0.0)

    @property
    def is_halfway(self) -> bool:
        """Whether the second phase is still to come."""
        return self.allowed.tolerance > 0 and not self.allowed.is_sought

    @property
    def remaining(self) -> float | None:
        """The certificate's gap; else a large multiple of the gain that the quadratics leave.

        That gain is not a proof. But if it was tiny a round ago, the certificate's gap is due to
        rounding, which further rounds do not improve.
        """
        if self.rounds == 0 or not self.is_exact:
            return None
        predicted = self.share_left * (1.0 if self.structure.is_quadratic else PREDICTION_FACTOR)
        proved = self.certificate
        if proved is None:
            return predicted
        settled = self.is_settled or self.structure.is_quadratic
        trusted = settled and self.share_left <= NOTHING_LEFT
        return min(proved.gap, predicted) if trusted else proved.gap

    @property
    def share_left(self) -> float:
        """What the quadratics leave to be gained, as a share of the risk that is minimised."""
        if not self.is_exact:
            return math.inf
        risk = self.allowed.mean if self.allowed.is_sought else self.answer
        return max(self.left, 0.0) / max(risk, 1e-300)

    @property
    def selected(self) -> Tensor:
        """The model with the lowest worst risk; for squared error, the next candidate.

        In the second phase, it is the model with the lowest mean within the limit.
        While sites are missing, it is the mean of the candidates, if they passed their trial.
        """
        if not self.is_exact:
            passed = self.trial.is_passed(self.counts, self.fixed.included)
            return (self.trial.mean if passed else self.trial.kept).unsqueeze(0)
        if self.allowed.is_sought:
            return self.allowed.model.unsqueeze(0)
        known = self.structure.is_quadratic and self.rounds > 0
        return (self.parameters if known else self.best).unsqueeze(0)


def second_order_fits(structure: LinearStructure | None, players: int) -> bool:
    """Return whether the model is linear and its players' second derivatives can be stored."""
    if structure is None:
        return False
    matrices = 1 if structure.coded else players
    return matrices * structure.free_numbers**2 <= MAX_CURVATURE


def start_second_order(
    parameters: Tensor,
    structure: LinearStructure,
    *,
    weights: Tensor,
    counts: Tensor,
    included: Tensor,
    keep_share: float,
    tolerance: float,
    size: RowSize,
) -> SecondOrderState:
    """Nothing is known yet: the first round collects the sums of the initial model."""
    players, numbers = len(counts), structure.free_numbers
    # A common shift of all outputs changes no prediction but increases the ridge penalty.
    point = structure.to_free(parameters)
    if structure.has_cone:
        point = nearest_in_cone(structure.cone, point)
    start = structure.from_free(point).to(parameters)
    new = torch.zeros(0, dtype=torch.float64).new_zeros
    return SecondOrderState(
        parameters=start,
        weights=weights,
        best=start,
        structure=structure,
        counts=counts,
        fixed=FixedShares(counts.double() / counts.sum(), included, keep_share),
        size=size,
        risks=new(players),
        slopes=new(players, numbers),
        curvature=new(1 if structure.coded else players, structure.curvature_numbers),
        centre=new(structure.inputs),
        scale=new(numbers),
        tangents=Tangents(new(0, players), new(0, players, numbers), *[new(0, players)] * 2),
        damping=FIRST_DAMPING,
        promised=0.0,
        left=math.inf,
        upper=float("inf"),
        lower=-float("inf"),
        answer=float("inf"),
        seen=new(players),
        repeats=0,
        rounds=0,
        trial=new_trial(start, players),
        curved=new(players),
        natural_curvature=new(int(structure.coded), structure.curvature_numbers),
        allowed=Allowed(start, new(players), tolerance),
        offsets=Offsets(torch.zeros(players, dtype=torch.float64)),
    )
