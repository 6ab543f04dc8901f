"""Encoded tables as a federation, and what identifies its runs."""

import hashlib
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from fedminmax.core.devices import usable_device
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.models import linear_or_mlp
from fedminmax.core.randomness import Purpose, torch_seeded
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.load import FederatedTables, OwnedExamples
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.report.run_folder_records import FORMAT, CensusFile


def federate(config: TableConfig, tables: FederatedTables, device: str) -> InProcessFederation:
    """Give every holder its encoded rows, and the model its start."""
    encoding = tables.encoding
    with torch_seeded(config.seed, Purpose.INITIALISATION):
        model = linear_or_mlp(len(encoding.names), encoding.outputs, config.model.hidden)
    model.to(usable_device(device))
    validation = [_given(part) for part in tables.validation]
    with warnings.catch_warnings():
        # A holder whose rows were all left out is in the notes, by its name.
        warnings.filterwarnings("ignore", message="holder .* has no rows")
        return InProcessFederation(
            model,
            LOSSES_BY_NAME[config.model.loss],
            [_given(part) for part in tables.train],
            group_names=tables.group_names,
            validation=validation,
            ridge=config.model.ridge,
            minimum_group=config.schema.minimum_to_play,
        )


def _given(part: OwnedExamples) -> tuple[Tensor, Tensor, Tensor]:
    return part.examples.x, part.examples.y, part.examples.group


def census_of(tables: FederatedTables) -> CensusFile:
    """Count rows by holder and group; test files of others than the holders are named apart."""
    holders, groups = tables.holders, len(tables.group_names)
    others = [part for part in tables.test if part.owner not in holders]
    return CensusFile(
        format=FORMAT,
        holders=holders,
        groups=tables.group_names,
        small_groups=tables.encoding.small_group_names,
        train=tuple(_counts(tables.train, holder, groups) for holder in holders),
        test=tuple(_counts(tables.test, holder, groups) for holder in holders),
        validation=tuple(_counts(tables.validation, holder, groups) for holder in holders)
        if tables.validation
        else (),
        other_tests={part.owner: _counts(others, part.owner, groups) for part in others},
    )


def identity(config: TableConfig, tables: FederatedTables, device: str) -> dict[str, object]:
    """Return what decides the numbers of all runs on these tables, but for the method."""
    schema = config.schema
    # Folders from before there was a ridge say nothing of it.
    ridge = {"ridge": config.model.ridge} if config.model.ridge else {}
    small = tables.encoding.small_group_names
    return {
        "data": {
            "target": schema.target.column,
            "classes": list(schema.target.classes),
            "holders": list(tables.holders),
            "held_out": config.held_out,
            **({"validation": config.validation} if config.validation else {}),
            "digest": _digest(tables),
        },
        "features": list(tables.encoding.names),
        "groups": list(tables.group_names),
        # Not in folders of earlier versions, where all groups played.
        **({"small_groups": list(small)} if small else {}),
        "model": {
            "kind": config.model.kind,
            "hidden": list(config.model.hidden),
            "loss": config.model.loss,
            **ridge,
        },
        "seed": config.seed,
        "device": device,
    }


def _counts(parts: Sequence[OwnedExamples], owner: str, groups: int) -> tuple[int, ...]:
    counts = torch.zeros(groups, dtype=torch.int64)
    for part in parts:
        if part.owner == owner:
            counts += torch.bincount(part.examples.group, minlength=groups)
    return tuple(int(count) for count in counts)


def _digest(tables: FederatedTables) -> str:
    """Return a short name for exactly these encoded rows."""
    found = hashlib.sha256()
    for part in (*tables.train, *tables.validation, *tables.test):
        for tensor in (part.examples.x, part.examples.y, part.examples.group):
            found.update(tensor.contiguous().numpy().data)
    return found.hexdigest()[:16]
