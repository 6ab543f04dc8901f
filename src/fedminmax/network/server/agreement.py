"""What all sites agree on before the first round: the encoding, the row counts, the learning rate.

It is stored with the checkpoints, so that a resumed run has the same encoding and the same counts,
even if a site is absent at that time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import check_encoding
from fedminmax.network.wire.codec import read_record
from fedminmax.network.wire.plan import NetworkPlan, task_of

AGREEMENT_FILE = "agreement.json"
RowCount = Annotated[int, Field(ge=0, lt=2**53, strict=True)]


@dataclass(frozen=True, eq=False)
class Agreed:
    """What is stored: encoding, rows by site and group, and the learning rate if it was open.

    ``lengths`` limit what sites can reply. ``validation`` are rows by site and group that are set
    aside to choose the round. ``start`` are the parameters that an additive model starts from, and
    ``class_bytes`` what a site got and sent until its smoothing and pairs were chosen.
    """

    encoding: Encoding
    counts: Mapping[str, Sequence[RowCount]]
    learning_rate: str | None
    lengths: Mapping[str, RowLengths] = field(default_factory=dict)
    validation: Mapping[str, Sequence[RowCount]] = field(default_factory=dict)
    start: Sequence[float] = ()
    class_bytes: tuple[RowCount, RowCount] = (0, 0)

    @property
    def start_parameters(self) -> Tensor | None:
        """The parameters that an additive model starts from; None for other models."""
        return torch.tensor(self.start, dtype=torch.float64) if self.start else None

    def validation_rows(self, sites: Sequence[str]) -> Tensor:
        """Return validation rows by site and group; no lines if none are set aside."""
        nothing = [0] * len(self.encoding.groups)
        lines = [list(self.validation.get(site, nothing)) for site in sites]
        return torch.tensor(lines if self.validation else [], dtype=torch.int64)

    def rows(self, sites: Sequence[str]) -> Tensor:
        """Return rows by site and group, with none for a site that is not part of it."""
        nothing = [0] * len(self.encoding.groups)
        return torch.tensor([list(self.counts.get(site, nothing)) for site in sites])

    def census(self, sites: Sequence[str]) -> Census:
        """Return the census of these sites."""
        schema = self.encoding.schema
        classes, least = len(schema.target.classes), schema.minimum_included
        return Census(self.rows(sites), classes, minimum_group=least)


@dataclass(frozen=True, eq=False)
class Agreement:
    """The plan, its encoding, the census, and why some sites are not part of it.

    ``row_lengths`` are those of the sites, in the plan's order. ``validation_rows`` are by site and
    group, without lines if none are set aside. ``group_curvature`` limits the second derivatives of
    each group's loss sum over all sites, if a safe learning rate was found.
    """

    plan: NetworkPlan
    encoding: Encoding
    census: Census
    _: KW_ONLY
    row_lengths: tuple[RowLengths, ...]
    validation_rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    group_curvature: Tensor | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    start: Tensor | None = None

    @cached_property
    def task(self) -> Task:
        """The model at its start, and the loss."""
        task = task_of(self.plan, self.encoding)
        if self.start is None:
            return task
        return replace(task, model=model_with(task, self.start))


def read_agreement(path: Path) -> Agreed | None:
    """Read what the sites agreed on; None if they never did."""
    damaged = InputError(f"{path} is damaged; start a new run")
    try:
        agreed = read_record(path, Agreed, "start a new run")
        if agreed is None:
            return None
        encoding, rate = agreed.encoding, agreed.learning_rate
        check_encoding(encoding, str(path))
        is_rate = rate is None or 0 < float(rate) < math.inf
    except ValueError as error:
        raise damaged from error
    lines = [*agreed.counts.values(), *agreed.validation.values()]
    columns = sum(block.own.size for block in encoding.blocks)
    starts = encoding.stage and encoding.is_additive
    numbers = encoding.outputs * (columns + 1) if starts else 0
    whole = all(len(own) == len(encoding.groups) for own in lines) and agreed.counts
    if not (whole and is_rate and len(agreed.start) == numbers):
        raise damaged
    return agreed
