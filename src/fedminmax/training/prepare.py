"""Convert what users give as sites to tensors in the model's precision; every group has a row.

A site is three tensors or arrays, a torch data set, or a data frame with named columns.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, check_consistent, check_examples
from fedminmax.core.messages import Census
from fedminmax.core.small_groups import (
    SmallGroupRule,
    groups_to_merge,
    names_after_merging,
    numbers_after_merging,
)
from fedminmax.core.task import first_line
from fedminmax.core.text import counted
from fedminmax.core.validation import checked_share
from fedminmax.core.workspace import Workspace
from fedminmax.data.frames import NUMBERS, Frame, frame_columns, is_frame, rows_of_frames
from fedminmax.data.partition import set_aside
from fedminmax.methods.shared.checks import check_whole
from fedminmax.training.protocol import value_marks

SiteInput = Sequence[Tensor | NDArray[Any]] | Dataset[Any] | Frame
"""One site's ``(x, y, group)``, or a data set whose rows are that, or a data frame."""


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Each site's training and validation rows, training rows by site and group, and names."""

    sites: list[Examples]
    validation: list[Examples]
    counts: Tensor
    group_names: tuple[str, ...]

    @property
    def validation_counts(self) -> Tensor:
        """Validation rows by site and group."""
        groups = len(self.group_names)
        cells = [torch.bincount(own.group, minlength=groups).cpu() for own in self.validation]
        return torch.stack(cells)


def prepare_rows(
    sites: Iterable[SiteInput],
    validation: float | Iterable[SiteInput],
    like: Tensor,
    *,
    target: str | None,
    group: str | Sequence[str] | None,
    group_names: Sequence[str] | None,
    seed: int,
    minimum_group: int,
    small: SmallGroupRule,
) -> PreparedRows:
    """Check and convert what was given; set validation rows aside, and merge small groups."""
    sites, validation, group_names = _without_frames(sites, validation, target, group, group_names)
    train, set_aside_rows = _with_validation(_examples_of(sites, like), validation, seed, like)
    names = _checked_names(group_names)
    counts = _count_rows(train, names)
    _check_validation_groups(set_aside_rows, counts.shape[1])
    names = names or tuple(map(str, range(counts.shape[1])))
    check_whole("Simulation", minimum=0, minimum_group=minimum_group)
    if not isinstance(small, SmallGroupRule):
        raise InputError(f"small = {small!r}; give SmallGroupRule.BY_SIZE, MERGE or INCLUDE")
    merged = groups_to_merge(counts.sum(dim=0).tolist(), minimum_group, small)
    if not merged:
        return PreparedRows(train, set_aside_rows, counts, names)
    number_of = torch.tensor(numbers_after_merging(len(names), merged))
    names = names_after_merging(names, merged)
    return PreparedRows(
        _renumbered(train, number_of),
        _renumbered(set_aside_rows, number_of),
        counts.new_zeros(len(counts), len(names)).index_add_(1, number_of, counts),
        names,
    )


def _without_frames(
    sites: Iterable[SiteInput],
    validation: float | Iterable[SiteInput],
    target: str | None,
    group: str | Sequence[str] | None,
    group_names: Sequence[str] | None,
) -> tuple[Iterable[SiteInput], float | Iterable[SiteInput], Sequence[str] | None]:
    """Turn data frames into arrays; return sites, validation rows and names of groups."""
    _check_list(sites)
    given: list[Any] = list(sites)
    others: list[Any] = list(validation) if _is_list(validation) else []
    frames = [is_frame(rows) for rows in (*given, *others)]
    if not any(frames):
        if target is not None or group is not None:
            raise InputError(
                f"target = {target!r} and group = {group!r} are columns of data frames, but "
                "sites are not data frames; drop them"
            )
        return given, others if _is_list(validation) else validation, group_names
    if not all(frames):
        raise InputError("some sites are data frames and some are not; give all alike")
    if group_names is not None:
        raise InputError("data frames name their groups themselves; drop group_names")
    columns = frame_columns(target, group)
    rows, rows_aside, names = rows_of_frames(given, others, columns)
    return rows, rows_aside if others else validation, names


def _examples_of(sites: Iterable[SiteInput], like: Tensor, owner: str = "site") -> list[Examples]:
    """Check each site's (x, y, group), in the precision and on the device of ``like``."""
    _check_list(sites)
    # Cast first: a finite number may overflow in the model's precision.
    found = [
        check_examples(*_cast(rows, like, f"{owner} {number}"), f"{owner} {number}")
        for number, rows in enumerate(sites)
    ]
    check_consistent(found)
    return found


def _is_list(given: object) -> TypeGuard[Iterable[Any]]:
    """Return whether an object is a list of several sites."""
    one = isinstance(given, (Mapping, Tensor, np.ndarray, Dataset, str)) or is_frame(given)
    return isinstance(given, Iterable) and not one


def _check_list(sites: object) -> None:
    if not _is_list(sites):
        raise InputError(
            f"sites is a {type(sites).__name__}; give a list with (x, y, group) of each"
        )


def _checked_names(group_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Refuse names that are not strings, or not unique."""
    if group_names is None:
        return None
    if isinstance(group_names, (str, AbstractSet, Mapping)):
        raise InputError(f"group_names = {group_names!r}; give a list with a name each, in order")
    names = tuple(group_names)
    for number, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"the name of group {number} is {name!r}; give a text")
        if name in names[:number]:
            raise InputError(
                f"groups {names.index(name)} and {number} are both named {name!r}; "
                "give every group its own name"
            )
    return names


def _count_rows(sites: list[Examples], group_names: Sequence[str] | None) -> Tensor:
    """Count rows by site and group; refuse a group that no site has."""
    rows_of_all = sum(len(rows) for rows in sites)
    if not rows_of_all:
        raise InputError("no site has a row; give at least one site with data")
    highest = 1 + max(int(rows.group.max()) for rows in sites if len(rows))
    groups = highest if group_names is None else len(group_names)
    if highest > groups:
        raise InputError(
            f"group {highest - 1} occurs in the data, but only {groups} group names were given; "
            "name every group"
        )
    if groups > rows_of_all:
        # Checked before counting, which takes memory for every number up to the highest.
        raise InputError(
            f"{groups} groups (0 to {groups - 1}) for {rows_of_all} rows leave groups without a "
            "row; number the groups from 0 without gaps"
        )
    counts = torch.stack([torch.bincount(rows.group.cpu(), minlength=groups) for rows in sites])
    for number, rows in enumerate(sites):
        if len(rows) == 0:
            warnings.warn(f"site {number} has no rows and is skipped", stacklevel=3)
    for group, count in enumerate(counts.sum(dim=0).tolist()):
        if count == 0:
            name = f"'{group_names[group]}' (number {group})" if group_names else str(group)
            raise InputError(
                f"group {name} has no rows at any site; remove it or renumber the groups from 0"
            )
    return counts


def _renumbered(sites: list[Examples], number_of: Tensor) -> list[Examples]:
    """Return the sites' rows with another number for each group."""
    return [replace(own, group=number_of.to(own.group.device)[own.group]) for own in sites]


def _with_validation(
    sites: list[Examples], validation: float | Iterable[SiteInput], seed: int, like: Tensor
) -> tuple[list[Examples], list[Examples]]:
    """Return the sites' training rows, and their validation rows: a share of them, or given."""
    check_whole("Simulation", minimum=0, seed=seed)
    if isinstance(validation, Iterable) and not isinstance(validation, str):
        given = _examples_of(validation, like, "validation rows of site")
        if given and len(given) != len(sites):
            raise InputError(
                f"validation has rows of {counted(len(given), 'site')}, but there are "
                f"{len(sites)}; give "
                "(x, y, group) of each site, if need be without rows"
            )
        return sites, given
    share = checked_share(validation)
    if share == 0.0:
        return sites, []
    pairs = [set_aside(rows, share, seed, str(number)) for number, rows in enumerate(sites)]
    return [train for train, _ in pairs], [own for _, own in pairs]


def _check_validation_groups(validation: list[Examples], groups: int) -> None:
    """Refuse validation rows of groups without training rows."""
    for number, rows in enumerate(validation):
        if len(rows) and int(rows.group.max()) >= groups:
            raise InputError(
                f"validation rows of site {number} have group {int(rows.group.max())}, which has "
                "no training rows; give it some, or remove its validation rows"
            )


def census_of(rows: PreparedRows, classes: int, workspace: Workspace, minimum_group: int) -> Census:
    """Count the rows, and add what tells their values apart and bounds rounding errors."""
    groups, linear = rows.counts.shape[1], workspace.linear
    return Census(
        rows.counts,
        classes,
        linear=linear,
        linear_start=workspace.linear_start,
        minimum_group=minimum_group,
        row_lengths=row_lengths_of(rows.sites, groups, coded=linear.coded)
        if linear and linear.ridge
        else None,
        value_marks=value_marks(rows.sites, groups),
    )


def row_lengths_of(sites: list[Examples], groups: int, *, coded: bool = False) -> Tensor:
    """Return the roots of the sums of |x|^2 over each group's rows, with a 1 appended to each.

    ``coded`` rows have an indicator for each block, which the model's transform does not lengthen.

    >>> rows = Examples(torch.tensor([[2.0, 2.0]]), torch.zeros(1), torch.tensor([1]))
    >>> row_lengths_of([rows], 2).round(decimals=9).tolist()
    [0.0, 3.0]
    """
    squares = torch.zeros(groups, dtype=torch.float64)
    for own in sites:
        if coded:
            counts = torch.bincount(own.group, minlength=groups).cpu()
            squares += counts * (own.x.shape[1] + 1.0)
            continue
        norms = torch.linalg.vector_norm(own.x.flatten(1), dim=1, dtype=torch.float64)
        squares += torch.bincount(own.group, weights=norms**2 + 1.0, minlength=groups).cpu()
    return squares.sqrt()


def _cast(rows: SiteInput, like: Tensor, owner: str) -> tuple[Tensor, Tensor, Tensor]:
    """Move a site's tensors to the model's device, floating-point ones to its precision.

    They are detached: training needs gradients only in the model.
    """
    parts: object = _stacked(rows, owner) if isinstance(rows, Dataset) else rows
    entries = list(parts) if isinstance(parts, (tuple, list)) else [parts]
    tensors = [tensor for tensor in map(_as_tensor, entries) if tensor is not None]
    if len(entries) != 3 or len(tensors) != 3:
        kinds = ", ".join(_kind(entry) for entry in entries[:5])
        raise InputError(
            f"{owner}: got ({kinds}); give (x, y, group) as three torch tensors or numpy arrays "
            "of numbers"
        )
    x, y, group = (
        tensor.to(like) if tensor.is_floating_point() else tensor.to(like.device)
        for tensor in (given.detach() for given in tensors)
    )
    return x, y, group


def _as_tensor(given: object) -> Tensor | None:
    """Return a tensor unchanged, and an array or a column of numbers as a tensor; else None.

    Torch shares an array's memory only if it is contiguous and writable.
    """
    if isinstance(given, Tensor):
        return given
    array: object = given.to_numpy() if hasattr(given, "to_numpy") else given
    if not isinstance(array, np.ndarray) or array.dtype.kind not in NUMBERS:
        return None
    kind = {"i": "i8", "u": "i8"}.get(array.dtype.kind, array.dtype.newbyteorder("="))
    if array.dtype.itemsize > np.dtype("f8").itemsize:
        kind = "f8"
    ordered: NDArray[Any] = np.ascontiguousarray(array, dtype=kind)
    return torch.from_numpy(ordered if ordered.flags.writeable else ordered.copy())


def _kind(given: object) -> str:
    name = type(given).__name__
    return f"{name} of {given.dtype}" if isinstance(given, np.ndarray) else name


def _stacked(rows: Dataset[tuple[Tensor, ...]], owner: str) -> Sequence[object]:
    """Return a data set's rows as tensors over all of them."""
    if isinstance(rows, TensorDataset):
        return rows.tensors
    try:
        size = len(rows)  # type: ignore[arg-type]
        own = [rows[row] for row in range(size)]
        columns: Sequence[object] = default_collate(own) if own else ()
    except (TypeError, RuntimeError, LookupError, ValueError, NotImplementedError) as error:
        raise InputError(
            f"{owner}: the rows of {type(rows).__name__} cannot be put together "
            f"({first_line(error)}); give rows (x, y, group) of one shape, or three torch tensors"
        ) from error
    return columns
