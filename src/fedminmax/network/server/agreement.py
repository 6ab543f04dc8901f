"""What all sites agree on before the first round: the encoding, the row counts, the learning rate.

It is stored with the checkpoints, so that a resumed run has the same encoding and the same counts,
even if a site is absent at that time.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.encoding import Encoding, encoding_as_json, encoding_from_json
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
    counts: Mapping[str, Sequence[int]]
    learning_rate: str | None
    lengths: Mapping[str, RowLengths] = field(default_factory=dict)
    validation: Mapping[str, Sequence[int]] = field(default_factory=dict)
    start: Sequence[float] = ()
    class_bytes: tuple[int, int] = (0, 0)

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
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        encoding = encoding_from_json(json.dumps(content["encoding"]), str(path))
        counts = TypeAdapter(dict[str, list[RowCount]]).validate_python(content["counts"])
        rate = TypeAdapter(str | None).validate_python(content["learning_rate"])
        lengths = TypeAdapter(dict[str, RowLengths]).validate_python(content["row_lengths"])
        rows = TypeAdapter(dict[str, list[RowCount]])
        validation = rows.validate_python(content["validation"])
        lines = [*counts.values(), *validation.values()]
        whole = all(len(own) == len(encoding.groups) for own in lines) and counts
        start = TypeAdapter(list[float]).validate_python(content["start"])
        columns = sum(block.own.size for block in encoding.blocks)
        numbers = encoding.outputs * (columns + 1) if encoding.stage else 0
        if whole and len(start) == numbers and (rate is None or 0 < float(rate) < math.inf):
            class_bytes = TypeAdapter(tuple[RowCount, RowCount]).validate_python(
                tuple(content["class_bytes"])
            )
            return Agreed(encoding, counts, rate, lengths, validation, start, class_bytes)
    except (ValueError, KeyError, TypeError, InputError) as error:
        raise InputError(f"{path} is damaged; start a new run") from error
    raise InputError(f"{path} is damaged; start a new run")


def write_agreement(path: Path, agreed: Agreed) -> None:
    """Keep what the sites agreed on."""
    content = {
        "encoding": json.loads(encoding_as_json(agreed.encoding)),
        "counts": agreed.counts,
        "learning_rate": agreed.learning_rate,
        "row_lengths": {site: asdict(own) for site, own in agreed.lengths.items()},
        "validation": agreed.validation,
        "start": list(agreed.start),
        "class_bytes": agreed.class_bytes,
    }
    write_json(path, content)
