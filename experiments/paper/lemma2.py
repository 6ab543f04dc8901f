"""Check that runs of FedMinMax in different settings are one trajectory.

Papadaki et al. 2021, Lemma 2: in exact arithmetic FedMinMax does not depend on which site has
which rows. In floating point the order of the sums differs. The first rounds show whether the
difference is only rounding: it is measured, in double and in single precision, before a result of
one setting is used for the others.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.text import counted
from fedminmax.methods.method import AnyMethod
from fedminmax.studies.study import RunPlan, Study
from fedminmax.training.train import train

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
# Relative differences that rounding can explain, with a margin.
TOLERANCES = {"float64": 1e-9, "float32": 1e-3}


@dataclass(frozen=True)
class OneTrajectory:
    """How much the first rounds in some settings differ from those in the first one."""

    source: str
    followers: tuple[str, ...]
    rounds: int
    rows: int
    differences: dict[str, float]

    @property
    def settings(self) -> tuple[str, ...]:
        """All settings that are one trajectory."""
        return (self.source, *self.followers)

    def __str__(self) -> str:
        figures = ", ".join(f"{value:.1e} in {name}" for name, value in self.differences.items())
        return (
            f"Lemma 2, checked over {counted(self.rounds, 'round')} on "
            f"{counted(self.rows, 'row')}: FedMinMax in "
            f"{', '.join(self.followers)} is the {self.source} trajectory up to a relative "
            f"difference of {figures}"
        )


def compare_first_rounds(
    study: Study, plans: Sequence[RunPlan], rounds: int
) -> Iterator[tuple[int, OneTrajectory | None]]:
    """Train the first rounds of all plans in both precisions; yield how many are done.

    The last item has the comparison. A difference that is not rounding is an error.
    """
    differences: dict[str, float] = {}
    rows = done = 0
    for name, precision in PRECISIONS.items():
        reference: list[Tensor] = []
        largest = 0.0
        for plan in plans:
            federation = study.federation(plan, precision)
            rows = int(federation.census.counts.sum())
            method: AnyMethod[Any] = plan.method
            seed = study.fold_seed(plan.fold)
            for one in train(federation, method, rounds=rounds, seed=seed):
                point = torch.cat([one.parameters().double().cpu(), one.weights.cpu()])
                if plan is plans[0]:
                    reference.append(point)
                else:
                    expected = reference[one.number - 1]
                    largest = max(largest, float((point - expected).norm() / expected.norm()))
                done += 1
                yield done, None
        differences[name] = largest
        if not largest <= TOLERANCES[name]:
            raise InputError(
                f"the first rounds of FedMinMax differ by {largest:.1e} in {name} between "
                "settings, more than rounding explains; run every setting (without --reuse-lemma2)"
            )
    settings = [plan.setting for plan in plans]
    found = OneTrajectory(settings[0], tuple(settings[1:]), rounds, rows, differences)
    yield done, found


def plans_to_compare(plans: Sequence[RunPlan], found: OneTrajectory | None) -> list[RunPlan]:
    """Return a plan to compare with, followed by the plans not yet compared.

    Empty if all of them are known to be one trajectory, or if there is nothing to compare with.
    """
    if found is None:
        return list(plans) if len(plans) > 1 else []
    new = [plan for plan in plans if plan.setting not in found.settings]
    return [replace(plans[0], setting=found.source), *new] if new else []


def merged(found: OneTrajectory | None, new: OneTrajectory) -> OneTrajectory:
    """Merge a comparison with an earlier one that has the same source."""
    if found is None:
        return new
    return OneTrajectory(
        found.source,
        (*found.followers, *new.followers),
        min(found.rounds, new.rounds),
        min(found.rows, new.rows),
        {name: max(found.differences[name], new.differences[name]) for name in new.differences},
    )


def write_one_trajectory(folder: Path, found: OneTrajectory) -> None:
    """Write the comparison next to the results."""
    write_json(folder / "one_trajectory.json", asdict(found))


def read_one_trajectory(folder: Path) -> OneTrajectory | None:
    """Read the comparison that a call with --reuse-lemma2 wrote, if any."""
    path = folder / "one_trajectory.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        return OneTrajectory(**(content | {"followers": tuple(content["followers"])}))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} is damaged; remove it and run with --reuse-lemma2 again"
        ) from error
