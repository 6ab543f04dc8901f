"""The server under a privacy guarantee: what sites agree on, and rounds with noise.

Exact totals over all sites are those that the encoding is made of: the number of rows, and count,
sum and sum of squares of number columns. Of groups and categories the server learns that they
occur, and at how many sites. Everything else is noisy: rows by group and, for a linear model, the
sum of x x' before the first round, then a step and losses in each. From them follow the learning
rate of methods that have none, and which groups are large enough to be played for.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.bounds import UNKNOWN_LENGTHS
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census, Order, Sums
from fedminmax.core.privacy.mechanism import Mechanism
from fedminmax.data.tables.encoding import Encoding, agree_on_encoding, encoding_as_json
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.methods.method import AnyMethod
from fedminmax.network.planned_runs import needs_learning_rate, with_rate
from fedminmax.network.secure.noisy_answers import empty_census, mechanism_of_plan
from fedminmax.network.server.agreement import (
    AGREEMENT_FILE,
    Agreed,
    Agreement,
    read_agreement,
    summaries_of,
    write_agreement,
)
from fedminmax.network.server.transport import Transport, gather
from fedminmax.network.wire.codec import RefusedError, check_finite
from fedminmax.network.wire.messages import vector_from_bytes
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan, task_of
from fedminmax.training.private import (
    completed,
    noisy_census,
    rate_from_census,
    step_size_of,
)

# Deviations that no noise will ever be off by: once in 10^15 draws.
DEVIATIONS = 8.0


def agree_privately(plan: NetworkPlan, transport: Transport, folder: Path) -> Agreement:
    """Let all sites prepare and encode their rows, and count them with noise, once in a run."""
    summaries, refused = summaries_of(plan, transport)
    agreed = read_agreement(folder / AGREEMENT_FILE)
    encoding = _new_encoding(plan, summaries, refused) if agreed is None else agreed.encoding
    payload = {"encoding": encoding_as_json(encoding).encode()}
    answers = gather(transport(plan.senders, "encode", payload))
    refused |= answers.failures
    if ALL_SITES not in answers.messages:
        raise InputError(
            f"the sites did not count their rows ({'; '.join(refused.values())}); resume the run"
        )
    vector = vector_from_bytes(answers.messages[ALL_SITES], empty_census(plan, encoding), ALL_SITES)
    mechanism = mechanism_of_plan(plan)
    census = _census(plan, encoding, mechanism, vector)
    if agreed is None:
        rate = None
        if needs_learning_rate(plan.runs):
            rate = rate_from_census(mechanism, census, task_of(plan, encoding).loss)
        agreed = Agreed(encoding, {ALL_SITES: census.counts[0].tolist()}, rate)
        write_agreement(folder / AGREEMENT_FILE, agreed)
    if agreed.learning_rate is not None:
        plan = replace(plan, runs=with_rate(plan.runs, agreed.learning_rate))
        payload = {"rate": agreed.learning_rate.encode()}
        refused |= gather(transport(plan.senders, "take_rate", payload)).failures
    return Agreement(plan, encoding, census, refused=refused, row_lengths=(UNKNOWN_LENGTHS,))


def agreed_minimum_group(plan: NetworkPlan, agreed: Agreed) -> int:
    """Return how many rows a group of a run needed to be played for."""
    counts = torch.tensor(agreed.counts[ALL_SITES], dtype=torch.float64)
    vector = empty_census(plan, agreed.encoding)
    vector[: len(counts)] = counts
    return _census(plan, agreed.encoding, mechanism_of_plan(plan), vector).minimum_group


def _census(plan: NetworkPlan, encoding: Encoding, mechanism: Mechanism, vector: Tensor) -> Census:
    groups, task = len(encoding.groups), task_of(plan, encoding)
    # What is known without any row.
    known = Census(
        torch.ones(1, groups, dtype=torch.int64),
        len(plan.schema.target.classes),
        linear=linear_structure_of(task),
        minimum_group=plan.schema.minimum_to_play,
    )
    parameters = task.initial_parameters.numel()
    return noisy_census(
        mechanism, vector[:groups], vector[groups:], known=known, parameters=parameters
    )


def _new_encoding(
    plan: NetworkPlan, summaries: dict[str, SiteSummary], refused: dict[str, str]
) -> Encoding:
    if ALL_SITES not in summaries or plan.privacy is None:
        raise InputError(
            f"too few of {len(plan.sites)} sites can take part, at least {plan.minimum_sites} are "
            f"needed ({'; '.join(refused.values())})"
        )
    total = summaries[ALL_SITES]
    if total.rows == 0:
        raise InputError("no site has a training row; give at least one site with data")
    plan.privacy.check_data(total.rows, len(plan.sites))
    # Classes are as the schema lists them: which of them occur is not asked.
    classes = range(max(len(plan.schema.target.classes), 1))
    groups = {group for group, _ in total.strata}
    total = replace(total, strata={(group, label): 1 for group in groups for label in classes})
    # How many rows a group has is not known here: the noisy census says which are too small.
    return replace(
        agree_on_encoding(plan.schema, total, splines=plan.model.is_spline), small_groups=()
    )


def completed_reply(
    agreement: Agreement, method: AnyMethod[Any], order: Order, reply: Sums, missing: int
) -> Sums:
    """Return a round's noisy total with what the server knows; ``missing`` sites are not in it.

    Raises:
        RefusedError: no rows and no noise lead to such sums.
    """
    plan, census = agreement.plan, agreement.census
    mechanism = mechanism_of_plan(plan)
    _check(reply, mechanism, census, step_size_of(mechanism, method, order, census.groups))
    return completed(
        mechanism,
        method,
        order,
        reply.step,
        reply.group_loss,
        counts=census.counts[0],
        ridge=agreement.task.ridge,
        sites=len(plan.sites) - missing,
    )


def _check(reply: Sums, mechanism: Mechanism, census: Census, step_size: float) -> None:
    """Refuse sums that are longer than all rows, clipped, and their noise can make them."""
    check_finite(reply.step, "step", ALL_SITES)
    check_finite(reply.group_loss, "losses", ALL_SITES)
    levels, privacy = mechanism.levels, mechanism.privacy
    numbers, groups = len(reply.step), census.groups
    on_counts = math.sqrt(mechanism.sites) * mechanism.census_deviations_at_site()[0]
    units = float(census.counts.sum()) + math.sqrt(groups) * (DEVIATIONS + 1.0) * on_counts
    per_unit = levels.gradient / (privacy.clip * mechanism.size)
    longest = step_size * (units / mechanism.size + per_unit * (math.sqrt(numbers) + DEVIATIONS))
    largest = 0.5 * mechanism.max_loss * units + levels.loss * (math.sqrt(groups) + DEVIATIONS)
    for name, vector, most in (
        ("step", reply.step, longest),
        ("losses", reply.group_loss, largest),
    ):
        length = float(vector.norm())
        if length > most:
            raise RefusedError(
                f"{ALL_SITES} sent {name} of length {length:g}, which is at most {most:g} with "
                "their rows and noise; refused"
            )
