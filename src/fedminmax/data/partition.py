"""How rows are split: between sites, and at a site into training, test and validation rows.

Between sites there are the paper's three settings, and Dirichlet. Papadaki et al. 2021, Section 6
and Appendix B. ESG: every site has all groups, equal sizes and equal mixes. SSG: every site has a
single group. PSG: half of the sites have the first half of the groups, the others the rest. In SSG
and PSG all sizes differ pairwise. Dirichlet over groups is the usual compromise (Hsu, Qi, Brown
2019), here over protected groups instead of labels. A partition is a list of row positions per
site; every row occurs exactly once.

Rows are set aside for testing or validation by group and label, by row or by person. By group and
label it is systematic sampling: rows in random order within their stratum, strata concatenated, and
every (1/share)-th row from a random start. So each stratum contributes its share, rounded down or
up, each site contributes its share of all rows, and no stratum loses its only row; with a share of
at most a half no stratum loses all of its rows.

By row, each row is drawn by itself: the draw depends only on the seed and the row's own values, so
that one row more in a table moves no other (which a privacy guarantee needs). By person, all rows
of a person are set aside, or none. The draw depends only on the seed and the person, so a person
with rows at two sites is on the same side at both. Both shares hold only on average.
"""

import hashlib
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, portions
from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed
from fedminmax.core.text import counted
from fedminmax.methods.shared.checks import check_positive, check_whole

Positions = NDArray[np.int64]
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# Concentration of the sizes in SSG and PSG: at 20 sites, the largest is about four times the
# smallest. The paper says only that all sizes differ.
SIZE_CONCENTRATION = 8.0


class Setting(Enum):
    """The paper's names for how groups are split between sites."""

    ESG = "ESG"
    SSG = "SSG"
    PSG = "PSG"


def partition_by_setting(setting: Setting, group: Tensor, sites: int, seed: int) -> list[Tensor]:
    """Return each site's row positions in this setting.

    >>> group = torch.tensor([0, 0, 1, 1])
    >>> [rows.tolist() for rows in partition_by_setting(Setting.ESG, group, 1, seed=0)]
    [[0, 1, 2, 3]]
    """
    if not isinstance(setting, Setting):
        raise InputError(f"setting = {setting!r}; give one of Setting, such as Setting.ESG")
    _check(group, sites, seed)
    groups = int(group.max()) + 1
    if setting is Setting.ESG:
        return partition_equally(group, sites, seed)
    if setting is Setting.SSG:
        return partition_by_blocks(group, [[a] for a in range(groups)], sites, seed)
    half = (groups + 1) // 2
    blocks = [list(range(half)), list(range(half, groups))]
    return partition_by_blocks(group, [block for block in blocks if block], sites, seed)


def partition_equally(group: Tensor, sites: int, seed: int) -> list[Tensor]:
    """ESG: deal each group's shuffled rows in turn, continuing where the previous group ended.

    Counts per site and group, and sizes, are equal if possible, and otherwise differ by one.
    """
    _check(group, sites, seed)
    generator = numpy_stream(seed, Purpose.PARTITION)
    shuffled = [generator.permutation(rows) for rows in _rows_by_group(group)]
    dealt = np.concatenate(shuffled)
    return _as_tensors([dealt[site::sites] for site in range(sites)])


def partition_by_blocks(
    group: Tensor, blocks: list[list[int]], sites: int, seed: int
) -> list[Tensor]:
    """SSG and PSG: each block of groups belongs to a team of sites; all sizes differ pairwise.

    Within a team every site has the same mix of the block's groups, up to rounding.
    """
    _check(group, sites, seed)
    if sites % len(blocks):
        raise InputError(
            f"{sites} sites cannot be shared equally by {len(blocks)} blocks of groups; "
            f"give a multiple of {len(blocks)}"
        )
    team = sites // len(blocks)
    generator = numpy_stream(seed, Purpose.PARTITION)
    rows_of = _rows_by_group(group)
    mixed = [_mix([generator.permutation(rows_of[a]) for a in block]) for block in blocks]
    drawn = [_draw_sizes(len(rows), team, generator) for rows in mixed]
    sizes = make_pairwise_different(drawn)
    return _as_tensors(
        [
            part
            for rows, site_sizes in zip(mixed, sizes, strict=True)
            for part in np.split(rows, np.cumsum(site_sizes)[:-1])
        ]
    )


def partition_by_dirichlet(
    group: Tensor, sites: int, concentration: float, seed: int
) -> list[Tensor]:
    """Give each site a share of each group drawn from Dirichlet(concentration).

    Small concentrations approach single-group sites, large ones equal mixes. A site may get
    no row at all.
    """
    _check(group, sites, seed)
    check_positive("partition", concentration=concentration)
    generator = numpy_stream(seed, Purpose.PARTITION)
    parts: list[list[Positions]] = [[] for _ in range(sites)]
    for rows in _rows_by_group(group):
        shares = generator.dirichlet(np.full(sites, concentration))
        if not abs(float(shares.sum()) - 1.0) < 1e-6:
            raise InputError(
                f"concentration = {concentration:g} cannot be drawn from; give one nearer to 1"
            )
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for pieces, part in zip(parts, np.split(generator.permutation(rows), cuts), strict=True):
            pieces.append(part)
    return _as_tensors([np.concatenate(pieces) for pieces in parts])


def make_pairwise_different(teams: list[list[int]]) -> list[list[int]]:
    """Move rows within teams until no two sites have the same size.

    A team of one has no partner to exchange rows with and does not change.

    >>> make_pairwise_different([[3, 3], [4, 2]])
    [[5, 1], [4, 2]]
    """
    sites = sum(len(team) for team in teams)
    if sites > len(teams) and sum(map(sum, teams)) < sites * (sites + 1) // 2:
        raise InputError(
            f"{sum(map(sum, teams))} rows are too few for {sites} sites of pairwise different "
            f"sizes; give at least {sites * (sites + 1) // 2} rows or fewer sites"
        )
    sizes = [list(team) for team in teams]
    taken = [size for team in sizes for size in team]
    for team in sizes:
        for site, size in enumerate(team):
            if len(team) > 1 and taken.count(size) > 1:
                _separate(team, site, taken)
    return sizes


def _separate(team: list[int], site: int, taken: list[int]) -> None:
    """Shift rows between this site and a team-mate so that both sizes are unique."""
    size = team[site]
    for shift in range(1, sum(team)):
        for mate, other in enumerate(team):
            for change in (shift, -shift):
                new = (size + change, other - change)
                if mate == site or min(new) < 1 or new[0] == new[1]:
                    continue
                if new[0] in taken or new[1] in taken:
                    continue
                team[site], team[mate] = new
                taken.remove(size)
                taken.remove(other)
                taken.extend(new)
                return
    raise InputError(
        f"cannot give {len(team)} sites with {sum(team)} rows sizes that differ from all "
        "others; give more rows or fewer sites"
    )


def _draw_sizes(rows: int, sites: int, generator: np.random.Generator) -> list[int]:
    """Draw sizes of at least one row that sum to ``rows``."""
    if rows < sites:
        raise InputError(
            f"{counted(rows, 'row is', 'rows are')} too few for {counted(sites, 'site')}; "
            "give fewer sites"
        )
    shares = generator.dirichlet(np.full(sites, SIZE_CONCENTRATION))
    cuts = np.round(np.cumsum(shares) * (rows - sites)).astype(int)
    return [int(size) + 1 for size in np.diff(cuts, prepend=0)]


def _mix(parts: list[Positions]) -> Positions:
    """Interleave groups evenly, so that any slice has about the same mix."""
    places = np.concatenate([(np.arange(len(part)) + 0.5) / len(part) for part in parts])
    return np.concatenate(parts)[np.argsort(places, kind="stable")]


def _rows_by_group(group: Tensor) -> list[Positions]:
    """Row positions of each group; every group must have some."""
    numbers = group.numpy()
    found = [np.flatnonzero(numbers == a).astype(np.int64) for a in range(int(numbers.max()) + 1)]
    for a, rows in enumerate(found):
        if len(rows) == 0:
            raise InputError(f"group {a} has no rows; renumber the groups from 0 without gaps")
    return found


def _check(group: Tensor, sites: int, seed: int) -> None:
    given: object = group
    if not isinstance(given, Tensor):
        raise InputError(f"group is {type(given).__name__}; give a torch tensor of whole numbers")
    if given.dim() != 1 or given.dtype not in _WHOLE:
        raise InputError(
            f"group is {given.dtype} of shape {tuple(given.shape)}; give a vector of whole numbers"
        )
    check_whole("partition", minimum=1, sites=sites)
    check_whole("partition", minimum=0, seed=seed)
    rows = len(group)
    if rows and int(group.min()) < 0:
        raise InputError(f"group {int(group.min())} is negative; number groups from 0")
    if rows and int(group.max()) >= rows:
        raise InputError(
            f"group {int(group.max())} among {rows} rows; renumber the groups from 0 without gaps"
        )
    if sites > rows:
        raise InputError(f"{sites} sites for {rows} rows; give between 1 and {rows} sites")


def _as_tensors(parts: list[Positions]) -> list[Tensor]:
    return [torch.from_numpy(np.sort(part)) for part in parts]


def split_strata(
    strata: NDArray[np.int64],
    share: float,
    *,
    seed: int,
    site: str,
    purpose: Purpose = Purpose.FOLDS,
) -> tuple[Positions, Positions]:
    """Split rows whose strata are the columns of an array.

    >>> train, test = split_strata(np.array([[0, 0, 0, 0, 1]]), 0.5, seed=0, site="north")
    >>> len(train), len(test)
    (3, 2)
    """
    rows = strata.shape[1]
    if share == 0.0:
        return np.arange(rows), np.arange(0)
    generator = numpy_stream(seed, purpose, site=number_of_name(site))
    shuffled = generator.permutation(rows)
    order = shuffled[np.lexsort(strata[:, shuffled])]
    start = generator.random()
    held = np.zeros(rows, dtype=bool)
    for part in portions(rows):
        # Rounded: a product such as 0.2 * 5 must not miss a whole number by an ulp.
        steps = np.floor(np.round(share * np.arange(part.start, part.stop + 1) + start, 9))
        chosen = np.diff(steps) > 0
        # With one row before and after, where there are any.
        first, last = max(part.start - 1, 0), min(part.stop + 1, rows)
        near = strata[:, order[first:last]]
        changes = np.ones(part.stop - part.start + 1, dtype=bool)
        changes[part.start == 0 : len(changes) - (part.stop == rows)] = (
            near[:, 1:] != near[:, :-1]
        ).any(axis=0)
        chosen &= ~(changes[:-1] & changes[1:])
        held[order[part][chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def split_persons(
    persons: NDArray[np.uint64], share: float, seed: int, purpose: Purpose = Purpose.FOLDS
) -> tuple[Positions, Positions]:
    """Split rows by their persons; the rows of one person stay together.

    >>> train, test = split_persons(np.array([7, 8, 7, 9, 7], np.uint64), 0.5, seed=2)
    >>> train.tolist(), test.tolist()
    ([0, 1, 2, 4], [3])
    """
    # The numbers of persons are hashes: mixed with the stream's seed they are uniform draws.
    mixed = _mixed(persons ^ np.uint64(stream_seed(seed, purpose)))
    held = mixed.astype(np.float64) < share * 2.0**64
    return np.flatnonzero(~held), np.flatnonzero(held)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits: the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def row_numbers(columns: Sequence[NDArray[Any]], rows: int) -> NDArray[np.uint64]:
    """Return a hash of each row's values; equal rows have equal numbers.

    >>> first, second, third = row_numbers([np.array([1, 2, 1]), np.array([0.5, -0.0, 0.5])], 3)
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    mixed = np.zeros(rows, dtype=np.uint64)
    for column in columns:
        if np.issubdtype(column.dtype, np.integer):
            bits = column.astype(np.int64).view(np.uint64)
        else:
            # One NaN and one zero.
            values = np.where(np.isnan(column), np.nan, column.astype(np.float64) + 0.0)
            bits = values.view(np.uint64)
        mixed = _mixed((mixed + np.uint64(0x9E3779B97F4A7C15)) ^ bits)
    return mixed


def max_held_out(train: int, share: float, strata: int) -> int:
    """Return the maximum number of held-out rows for these numbers of training rows and strata.

    Of N consecutive rows, fewer than share * N + 1 are chosen.

    >>> max_held_out(80, 0.2, 1), max_held_out(80, 0.0, 1)
    (21, 0)
    """
    return math.floor((share * train + strata) / (1.0 - share) + 1e-6) if share else 0


def set_aside(rows: Examples, share: float, seed: int, site: str) -> tuple[Examples, Examples]:
    """Return a site's training rows and its validation rows, each in their original order."""
    group = rows.group.cpu()
    # Quantities and shares of classes are not labels.
    labels = rows.y.cpu() if rows.y.dtype == torch.int64 and rows.y.dim() == 1 else group
    strata = torch.stack([group, labels]).numpy()
    split = split_strata(strata, share, seed=seed, site=site, purpose=Purpose.VALIDATION)
    train, validation = (torch.from_numpy(positions).to(rows.group.device) for positions in split)
    return rows.rows(train), rows.rows(validation)


def number_of_name(name: str) -> int:
    """Map a name to a 64-bit number that is the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
