"""Get advice for a configuration or a census, and add it to the results of a finished run.

Before training, the row counts come from a configuration's tables, or from the census or agreement
file of a run. After a run, its results say whether weights over sites could have reached its
final group weights, and what the run cost.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from fedminmax.advice.cost import MessageBytes, message_bytes, task_of_tables, usual_rounds
from fedminmax.advice.counts import Advice, RunCost, advise
from fedminmax.config.planned_runs import planned_runs, with_rate
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.core.task import Task
from fedminmax.data.tables.census import CensusFile, census_of, first_error
from fedminmax.data.tables.encode import blank_row
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement

# Shown beside the configuration's method, if they are known.
COMPARED = ("fedminmax-fast", "fedminmax", "afl")
# A placeholder for the safe learning rate, which does not change any message's length.
ANY_RATE = "1"


def advise_census(
    file: CensusFile, loss: str = "brier", chosen: str | None = None, minimum_group: int = 0
) -> Advice:
    """Return the advice that needs no model; ``chosen`` is the method's key, if there is one."""
    return advise(
        Census(torch.tensor(file.train), minimum_group=minimum_group),
        group_names=file.groups,
        site_names=file.sites,
        test_rows=test_rows_of(file),
        loss=loss,
        chosen=chosen,
    )


def test_rows_of(file: CensusFile) -> Sequence[int] | None:
    """Return the test rows of each group; None if there are none at all."""
    lines = [*file.test, *file.other_tests.values()]
    rows = [sum(column) for column in zip(*lines, strict=True)]
    return rows if any(rows) else None


def advise_on(path: Path) -> Advice:
    """Return advice for a configuration, or for a census.json or agreement.json of a run."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a configuration, or the census.json in it")
    if path.suffix != ".json":
        return advise_config(read_config(path))
    if not path.is_file():
        raise InputError(f"{path} does not exist; give a configuration or a census.json")
    if path.name == AGREEMENT_FILE:
        return _advise_agreement(path)
    return advise_census(_read_census(path))


def advise_config(config: TableConfig) -> Advice:
    """Read the configuration's tables, count their rows and return the advice."""
    tables = load_federated_tables(config)
    file = census_of(tables)
    task = task_of_tables(config.model, tables.encoding)
    classes = len(config.schema.target.classes)
    least = config.schema.minimum_group_size
    census = Census(
        torch.tensor(file.train), classes, linear=linear_structure_of(task), minimum_group=least
    )
    row = blank_row(tables.encoding)
    return advise(
        census,
        group_names=file.groups,
        site_names=file.sites,
        test_rows=test_rows_of(file),
        loss=config.model.loss,
        chosen=config.method.name,
        costs=_costs(config, task, census, row),
    )


def _advise_agreement(path: Path) -> Advice:
    agreed = read_agreement(path)
    if agreed is None:
        raise InputError(f"{path} does not exist; give a configuration or a census.json")
    sites = tuple(agreed.counts)
    regression = agreed.encoding.schema.target.is_quantity
    return advise(
        Census(agreed.rows(sites), minimum_group=agreed.encoding.schema.minimum_group_size),
        group_names=agreed.encoding.group_names,
        site_names=sites,
        loss="squared_error" if regression else "brier",
    )


def _read_census(path: Path) -> CensusFile:
    try:
        file = CensusFile.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise InputError(
            f"{path} is not a census ({first_error(error)}); give the census.json of a run folder"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON; give the census.json of a run folder") from error
    lines = [*file.train, *file.test, *file.other_tests.values()]
    if len(file.train) != len(file.sites) or any(len(own) != len(file.groups) for own in lines):
        raise InputError(
            f"{path} is damaged: it needs one count for each site and group; train again"
        )
    return file


def _costs(config: TableConfig, task: Task, census: Census, row: Tensor) -> list[RunCost]:
    asked = planned_runs(config.method)[0]
    (asked,) = with_rate([asked], ANY_RATE)
    others = [key for key in COMPARED if key in CARDS and key != asked.method]
    methods = {asked.method: asked.build()} | {key: CARDS[key].build({}) for key in others}
    costs = []
    for key, method in methods.items():
        messages: MessageBytes | None = None
        refusal = None
        try:
            validates = config.validation > 0
            messages = message_bytes(method, task, census, row, validates=validates)
        except InputError as error:
            refusal = str(error)
        rounds = usual_rounds(
            key,
            linear=census.linear is not None,
            loss=config.model.loss,
            additive=config.model.is_additive,
        )
        max_rounds = asked.rounds if key == asked.method else None
        costs.append(RunCost(key, rounds, max_rounds, messages, refusal))
    return costs
