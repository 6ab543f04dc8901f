"""Groups that are too small for an adversary to choose, and how they are handled.

Minimax training serves the group with the highest risk. If that can be two rows with odd labels,
two rows decide the model. So a group with fewer training rows, over all sites, than a minimum
either trains with its natural share, and is measured but never chosen, or is merged with the other
small groups.
"""

import math
from collections.abc import Sequence
from enum import Enum

from fedminmax.core.errors import InputError

# Default of tables and estimators; the default of Simulation is 0: all groups are included.
MINIMUM_GROUP = 30
MERGED_NAME = "merged small groups"


class SmallGroupRule(Enum):
    """How groups with fewer training rows than the minimum are handled.

    BY_SIZE: each has its share of the rows as weight. MERGE: they become one group, which is
    included if it is large enough. INCLUDE: the minimum is ignored.
    """

    BY_SIZE = "by_size"
    MERGE = "merge"
    INCLUDE = "include"


def included_groups(rows: Sequence[int], minimum: int) -> list[bool]:
    """Return which groups have enough training rows for an adversary to choose them.

    If all are too small, it may choose any of them.

    >>> included_groups([100, 2], 30), included_groups([3, 2], 30)
    ([True, False], [True, True])
    """
    enough = [count >= minimum for count in rows]
    return enough if any(enough) else [True] * len(rows)


def minimum_included(minimum: int, rule: SmallGroupRule) -> int:
    """Return how many rows a group needs before the adversary may choose it."""
    return 0 if rule is SmallGroupRule.INCLUDE else minimum


def groups_to_merge(rows: Sequence[int], minimum: int, rule: SmallGroupRule) -> tuple[int, ...]:
    """Return which groups to merge: the small ones, if there are at least two and a larger one.

    >>> groups_to_merge([100, 2, 50, 3], 30, SmallGroupRule.MERGE)
    (1, 3)
    """
    small = tuple(group for group, count in enumerate(rows) if count < minimum)
    return small if rule is SmallGroupRule.MERGE and 2 <= len(small) < len(rows) else ()


def numbers_after_merging(groups: int, merged: Sequence[int]) -> list[int]:
    """Return each group's new number: the merged group comes last.

    >>> numbers_after_merging(4, (1, 3))
    [0, 2, 1, 2]
    """
    kept = [group for group in range(groups) if group not in merged]
    return [len(kept) if group in merged else kept.index(group) for group in range(groups)]


def names_after_merging(names: Sequence[str], merged: Sequence[int]) -> tuple[str, ...]:
    """Return the groups' names in the order of their new numbers."""
    kept = [name for group, name in enumerate(names) if group not in merged]
    if MERGED_NAME in kept:
        raise InputError(f"a group is named '{MERGED_NAME}', as merged groups are; rename it")
    return (*kept, MERGED_NAME)


def small_group_notes(
    rows: Sequence[int], names: Sequence[str], minimum: int, rule: SmallGroupRule
) -> list[str]:
    """Return notes on which groups are too small, and what that means; none if all are included.

    >>> small_group_notes([100, 90, 2], ["a", "b", "c"], 30, SmallGroupRule.BY_SIZE)[0][:66]
    "groups with fewer than 30 training rows: 'c' (2); trained with its"
    """
    small = [(name, count) for name, count in zip(names, rows, strict=True) if count < minimum]
    if rule is SmallGroupRule.INCLUDE or not small:
        return []
    if len(small) == len(rows):
        all_small = (
            f"every group has fewer than {minimum:,} training rows: training may focus on any of "
            "them as the worst group, so a few rows may decide the model"
        )
        return [all_small]
    listed = ", ".join(f"'{name}' ({count:,})" for name, count in small)
    whose = "its" if len(small) == 1 else "their"
    note = (
        f"groups with fewer than {minimum:,} training rows: {listed}; trained with {whose} share "
        "of all rows and measured, but too small for training to focus on as the worst group"
    )
    if len(small) < len(rows) - 1:
        return [note]
    left = next(name for name, count in zip(names, rows, strict=True) if count >= minimum)
    alone = (
        f"only '{left}' has enough training rows: minimax over groups is then ordinary training, "
        "with the same weight for every row"
    )
    return [note, alone]


def largest_standard_error(rows: int, *, regression: bool) -> float:
    """Return how large the standard error of a risk can be that is the mean over this many rows.

    Scores between 0 and 2 have a standard deviation of at most 1 (Popoviciu 1935): for a Brier risk
    this is the upper bound. For a squared error with normal residuals it is relative to the risk.

    >>> largest_standard_error(100, regression=False), largest_standard_error(200, regression=True)
    (0.1, 0.1)
    """
    return math.sqrt((2.0 if regression else 1.0) / rows)
