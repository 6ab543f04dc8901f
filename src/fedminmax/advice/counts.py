"""Advice before any training, from the row counts by site and group alone.

It answers these questions: Is a model that is minimax over sites also minimax over groups? Which
groups are too small for their risk to be estimated? What does each method reveal about a site,
and what does a run cost? What would help?

The first question is Lemma 1 of Papadaki et al. 2021. A site's mix is its share of each group. A
method that weights sites rather than groups weights the groups by a mean of the sites' mixes:
it reaches the convex hull of the mixes and nothing beyond. The lemma is about the population: it
assumes that people of one group are alike wherever their rows are. With few rows, sites of the
same group differ by chance, and a method over sites then also protects the unluckiest site.

| symbol                        | name                |
|-------------------------------|---------------------|
| P_A, a column per site      | mixes, a line each  |
| P_A Delta                     | the hull of mixes   |
| mu                            | target              |
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from fedminmax.advice.cost import MessageBytes, Rounds
from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census, Reveals
from fedminmax.core.small_groups import MINIMUM_GROUP, largest_standard_error
from fedminmax.core.solvers.simplex import Array, minimise_on_simplex
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS

# Weights that differ by less count as equal.
SAME = 1e-6
# Squares of distances have rounding errors of this size.
ROUNDING = 1e-15
# A site belongs mostly to a group that has more than this share of its rows.
MOSTLY = 0.5
# Sites whose mixes are closer to each other than this are nearly alike.
NEARLY_ALIKE = 0.05
# The target standard error when more rows are recommended.
SMALL_ERROR = 0.05


@dataclass(frozen=True, eq=False)
class NearestMix:
    """The reachable mix that is nearest to a target, and its Euclidean distance from it."""

    mix: Tensor
    distance: float

    @property
    def is_reached(self) -> bool:
        """Whether the target itself is reachable."""
        return self.distance <= SAME


def mixes_of(counts: Tensor) -> Tensor:
    """Return each site's shares of the groups [sites, groups], for sites that have rows.

    >>> mixes_of(torch.tensor([[1, 3], [0, 0], [2, 0]])).tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    """
    occupied = counts[counts.sum(dim=1) > 0].to(torch.float64)
    return occupied / occupied.sum(dim=1, keepdim=True)


def nearest_mix(mixes: Tensor, target: Tensor) -> NearestMix:
    """Return the point of the mixes' convex hull that is nearest to a target.

    This is the algorithm of Wolfe: Finding the nearest point in a polytope, Mathematical
    Programming 1976: solve a small quadratic programme over a few corners, add the corner that lies
    farthest on the target's side, and repeat until there is none.

    >>> corners = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    >>> found = nearest_mix(corners, torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    >>> found.mix.numpy().round(6).tolist(), round(found.distance, 6)
    ([0.25, 0.5, 0.25], 0.612372)
    """
    away = (mixes - target).numpy()
    lengths = (away**2).sum(axis=1)
    # Corners of the hull around the nearest point, and its weights on them.
    corners, weights = np.array([lengths.argmin()]), np.ones(1)
    point: Array = away[corners[0]]
    while True:
        along = away @ point
        farthest = int(along.argmin())
        if along[farthest] >= point @ point - ROUNDING or farthest in corners:
            break
        corners, weights = np.append(corners, farthest), np.append(weights, 0.0)
        between = away[corners]
        none, all_of_it = np.zeros(len(corners)), np.ones(len(corners))
        weights = minimise_on_simplex(between @ between.T, none, weights, low=none, high=all_of_it)
        nearer = weights @ between
        if nearer @ nearer >= point @ point:
            break
        corners, weights, point = corners[weights > 0.0], weights[weights > 0.0], nearer
    return NearestMix(target + torch.from_numpy(point), float(np.sqrt(point @ point)))


class Reach(Enum):
    """Which mixes of groups the weights over sites can reach."""

    EVERY_MIX = "every mix of the groups"
    ONE_MIX = "one mix of the groups"
    SOME_MIXES = "some mixes of the groups"


@dataclass(frozen=True)
class GroupAdvice:
    """One group: its rows, its sites, and how much weight a method over sites can give it.

    ``largest_share`` is its largest share of any site's rows, at ``largest_site``: no weights
    over sites give the group more weight. ``distance`` is the distance from the hull of the
    sites' mixes to the weights that are all on this group (0: they are reached). The standard
    errors are those of its risk on its training and its test rows; for a squared error, relative to
    it. It is small if it has fewer training rows than the census's minimum.
    """

    name: str
    rows: int
    _: KW_ONLY
    share: float
    sites: int
    largest_site: str | None
    largest_share: float
    distance: float
    standard_error: float | None
    test_rows: int | None
    test_standard_error: float | None
    is_small: bool

    @property
    def is_reached(self) -> bool:
        """Whether a site has only this group."""
        return self.rows > 0 and self.largest_share == 1.0

    @property
    def has_own_site(self) -> bool:
        """Whether some site's rows are mostly of this group."""
        return self.largest_share > MOSTLY

    @property
    def has_few_test_rows(self) -> bool:
        """Whether it has too few test rows for any statement about it."""
        return self.test_rows is not None and self.test_rows < MIN_ROWS


@dataclass(frozen=True)
class RunCost:
    """What a run of a method costs each site; ``rounds`` is an estimate, bytes are exact.

    ``max_rounds`` is the configuration's number of rounds, None for a method that it does not name.
    ``messages`` is None if the method cannot train this model; ``refusal`` says why.
    """

    method: str
    rounds: Rounds | None
    max_rounds: int | None
    messages: MessageBytes | None
    refusal: str | None = None

    @property
    def bytes_up(self) -> tuple[int, int] | None:
        """The bytes that a site sends in a run, at least and at most; None if unknown.

        A method that stops when it is done takes the needed rounds, others the configured ones.
        """
        rounds, most = self.rounds, self.max_rounds
        if most is not None and (rounds is None or not stops_by_itself(self.method)):
            rounds = Rounds(most, most)
        if rounds is None or self.messages is None:
            return None
        low, high = (min(own, most or own) for own in (rounds.low, rounds.high))
        return low * self.messages.up, high * self.messages.up


def stops_by_itself(method: str) -> bool:
    """Return whether a method's runs end when there is nothing left to gain."""
    return method in CARDS and "optimality_gap" in CARDS[method].option_types


@dataclass(frozen=True)
class Advice:
    """Everything that the row counts imply.

    ``spread`` is how far the most distant site's mix is from the mix of all rows. Groups with
    fewer training rows than ``minimum_group`` are small.
    """

    reach: Reach
    spread: float
    _: KW_ONLY
    loss: str
    minimum_group: int
    sites: tuple[str, ...]
    site_rows: tuple[int, ...]
    mixes: tuple[tuple[float, ...], ...]
    groups: tuple[GroupAdvice, ...]
    reveals: dict[str, tuple[str, ...]]
    chosen: str | None
    costs: tuple[RunCost, ...]

    @property
    def equivalent(self) -> bool:
        """Whether minimax over sites is also minimax over groups, whatever the risks."""
        return self.reach is Reach.EVERY_MIX

    @property
    def relative_errors(self) -> bool:
        """Whether standard errors are relative to the risk."""
        return self.loss == "squared_error"


def advise(
    census: Census,
    *,
    group_names: Sequence[str] | None = None,
    site_names: Sequence[str] | None = None,
    test_rows: Sequence[int] | None = None,
    loss: str = "brier",
    chosen: str | None = None,
    costs: Sequence[RunCost] = (),
) -> Advice:
    """Return what the row counts imply, before any training.

    Args:
        census: rows by site and group, such as a federation's ``census``.
        group_names: names of the groups; by default their numbers.
        site_names: names of the sites; by default their numbers.
        test_rows: test rows of each group, if known.
        loss: "brier", "cross_entropy" (also reported as Brier score) or "squared_error".
        chosen: the key of the method to train with, if any.
        costs: the costs of some methods' runs.

    >>> own = advise(Census(torch.tensor([[30, 0], [0, 70]])), group_names=["women", "men"])
    >>> own.equivalent, [group.largest_share for group in own.groups]
    (True, [1.0, 1.0])
    """
    groups = _names(group_names, census.groups, "group_names", "groups")
    sites = _names(site_names, census.sites, "site_names", "sites")
    if loss not in LOSSES_BY_NAME:
        raise InputError(f"loss '{loss}' is unknown; choose from {', '.join(LOSSES_BY_NAME)}")
    if test_rows is not None and len(test_rows) != census.groups:
        raise InputError(
            f"test_rows has {len(test_rows)} numbers for {census.groups} groups; give one each"
        )
    if not census.occupied:
        raise InputError("no site has a training row; give at least one site with rows")
    mixes = mixes_of(census.counts)
    overall = census.group_shares
    spread = float(torch.linalg.vector_norm(mixes - overall, dim=1).max())
    found = tuple(
        _group_advice(census, place, name, sites=sites, test_rows=test_rows, loss=loss)
        for place, name in enumerate(groups)
    )
    # A group without rows does not enter any site's risk.
    if all(group.is_reached for group in found if group.rows):
        reach = Reach.EVERY_MIX
    else:
        reach = Reach.ONE_MIX if bool((mixes == mixes[0]).all()) else Reach.SOME_MIXES
    return Advice(
        reach,
        spread,
        loss=loss,
        minimum_group=census.minimum_group or MINIMUM_GROUP,
        sites=tuple(sites[place] for place in census.occupied),
        site_rows=tuple(census.site_counts[list(census.occupied)].tolist()),
        mixes=tuple(map(tuple, mixes.tolist())),
        groups=found,
        reveals=_reveals(),
        chosen=chosen,
        costs=tuple(costs),
    )


def nearest_to_weights(counts: Sequence[Sequence[int]], weights: Sequence[float]) -> NearestMix:
    """Return the mix that weights over these sites can produce, nearest to the group weights."""
    target = torch.tensor(weights, dtype=torch.float64)
    return nearest_mix(mixes_of(torch.tensor(counts)), target)


def rows_for(error: float, loss: str) -> int:
    """Return how many rows reduce the standard error of a risk to this value.

    >>> rows_for(0.05, "brier"), rows_for(0.05, "squared_error")
    (400, 800)
    """
    return math.ceil(round((_error_of(1, loss) or 0.0) ** 2 / error**2, 6))


def _error_of(rows: int, loss: str) -> float | None:
    """Return the largest standard error of a risk over this many rows; None if there are none."""
    return largest_standard_error(rows, regression=loss == "squared_error") if rows else None


def _group_advice(
    census: Census,
    place: int,
    name: str,
    *,
    sites: Sequence[str],
    test_rows: Sequence[int] | None,
    loss: str,
) -> GroupAdvice:
    counts = census.counts[:, place]
    rows, mixes = int(counts.sum()), mixes_of(census.counts)
    alone = torch.zeros(census.groups, dtype=torch.float64)
    alone[place] = 1.0
    largest = int(mixes[:, place].argmax())
    tested = None if test_rows is None else int(test_rows[place])
    return GroupAdvice(
        name,
        rows,
        share=float(census.group_shares[place]),
        sites=int((counts > 0).sum()),
        largest_site=sites[census.occupied[largest]] if rows else None,
        largest_share=float(mixes[largest, place]),
        distance=nearest_mix(mixes, alone).distance,
        standard_error=_error_of(rows, loss),
        test_rows=tested,
        test_standard_error=None if tested is None else _error_of(tested, loss),
        is_small=0 < rows < (census.minimum_group or MINIMUM_GROUP),
    )


def _reveals() -> dict[str, tuple[str, ...]]:
    """Return the methods by what they reveal about a site, the least revealing first."""
    return {
        level.value: tuple(key for key, card in CARDS.items() if card.reveals == level.value)
        for level in Reveals
    }


def _names(given: Sequence[str] | None, count: int, option: str, what: str) -> tuple[str, ...]:
    if given is None:
        return tuple(map(str, range(count)))
    if len(given) != count:
        raise InputError(f"{option} has {len(given)} names for {count} {what}; give one each")
    return tuple(given)
