"""Groups that are too small for an adversary: which they are, and what becomes of them.

A minimax game belongs to whoever has the highest risk. If that may be two rows with odd labels, two
rows own the model. So a group below a minimum of training rows, over all holders, either trains
with its natural share, measured like any other but not to be chosen, or is merged with the other
small ones.
"""

from collections.abc import Sequence
from enum import Enum

from fedminmax.core.errors import InputError

# What tables and estimators take unless told otherwise; InProcessFederation takes 0: all play.
MINIMUM_GROUP = 30
MERGED_NAME = "merged small groups"


class SmallGroupRule(Enum):
    """What becomes of groups with fewer training rows than the minimum.

    SHARE: each weighs what its share of the rows is. MERGE: they become one group, which plays if
    it is large enough. PLAY: the minimum does not matter.
    """

    SHARE = "share"
    MERGE = "merge"
    PLAY = "play"


def playable_groups(rows: Sequence[int], minimum: int) -> list[bool]:
    """Tell which groups have enough training rows for an adversary to choose them.

    Where all are too small, it may choose any: there is nobody else to train for.

    >>> playable_groups([100, 2], 30), playable_groups([3, 2], 30)
    ([True, False], [True, True])
    """
    enough = [count >= minimum for count in rows]
    return enough if any(enough) else [True] * len(rows)


def minimum_to_play(minimum: int, rule: SmallGroupRule) -> int:
    """Return the rows that a group needs for the adversary to choose it."""
    return 0 if rule is SmallGroupRule.PLAY else minimum


def groups_to_merge(rows: Sequence[int], minimum: int, rule: SmallGroupRule) -> tuple[int, ...]:
    """Return which groups become one: the small ones, if there are two of them and a larger one.

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
    """Say in a line which groups are too small to play for, and what that means; none if all play.

    >>> small_group_notes([100, 90, 2], ["a", "b", "c"], 30, SmallGroupRule.SHARE)[0][:70]
    "too few training rows to play for, under 30: 'c' (2); trained with its"
    """
    small = [(name, count) for name, count in zip(names, rows, strict=True) if count < minimum]
    if rule is SmallGroupRule.PLAY or not small:
        return []
    if len(small) == len(rows):
        all_small = (
            f"every group has fewer than {minimum:,} training rows: any of them may become the "
            "worst group that training is for, so that a few rows may decide the model"
        )
        return [all_small]
    listed = ", ".join(f"'{name}' ({count:,})" for name, count in small)
    whose = "its" if len(small) == 1 else "their"
    note = (
        f"too few training rows to play for, under {minimum:,}: {listed}; trained with {whose} "
        "share of all rows and measured, but never the worst group that training is for"
    )
    if len(small) < len(rows) - 1:
        return [note]
    left = next(name for name, count in zip(names, rows, strict=True) if count >= minimum)
    alone = (
        f"only '{left}' has enough training rows to play for: minimax over groups is then "
        "ordinary training, with every row at the weight that it has"
    )
    return [note, alone]
