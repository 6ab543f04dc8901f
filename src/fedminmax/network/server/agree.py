"""How sites agree before the first round: on the encoding, the row counts and the learning rate.

Rows are counted exactly, or with noise under a privacy guarantee. Where the plan leaves the
learning rate open and counts are exact, ``agree_parts`` finds it.

Under a privacy guarantee the exact totals over all sites are those that the encoding is made of:
the number of rows, and count, sum and sum of squares of number columns. Of groups and categories
the server learns that they occur, and at how many sites. Everything else is noisy: rows by group
and, for a linear model, the sum of x x' before the first round, then a step and losses in each.
From them follow the learning rate of methods that have none, and which groups are large enough to
be played for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import torch
from torch import Tensor

from fedminmax.config.planned_runs import needs_learning_rate, with_rate
from fedminmax.core.bounds import UNKNOWN_LENGTHS
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import linear_start_of, linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.codes import check_same_codes
from fedminmax.data.tables.encoding import Encoding, with_directions
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.site_summary import SiteSummary, row_lengths
from fedminmax.network.secure.layouts import mechanism_of_plan
from fedminmax.network.server.agree_parts import (
    agree_on_bins,
    agree_on_class,
    agree_on_rate,
    agree_on_values,
    check_enough,
    coded_lengths,
    with_class,
)
from fedminmax.network.server.agreement import (
    AGREEMENT_FILE,
    Agreed,
    Agreement,
    read_agreement,
)
from fedminmax.network.server.log import NOTICE_FILE
from fedminmax.network.server.masked_sites import Sites
from fedminmax.network.wire.codec import write_record
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan, max_rows_set_aside, task_of
from fedminmax.training.private import noisy_census, packed_zeros, rate_from_census

Counts = Mapping[str, Tensor]
Summaries = Mapping[str, SiteSummary]


def agree(plan: NetworkPlan, sites: Sites, folder: Path) -> Agreement:
    """Let all sites prepare and encode their rows; an existing agreement is kept."""
    received = sites.prepare()
    if plan.schema.open_columns:
        plan, received = agree_on_values(plan, sites, folder, received.reasons)
    rule = ExactCensus(plan, sites) if plan.privacy is None else NoisyCensus(plan)
    refused, summaries = received.reasons, {}
    most = plan.site_rules.max_rows * plan.max_sites_per_reply
    for site, summary in received.records.items():
        if summary.rows > most:
            refused[site] = (
                f"{site} reports {summary.rows:,} training rows, more than {most:,}; "
                "refused (if it has them, raise --max-rows)"
            )
        else:
            summaries[site] = summary
    agreed = read_agreement(folder / AGREEMENT_FILE)
    encoding = rule.encoding(summaries, refused) if agreed is None else agreed.encoding
    begin = None if agreed is None else agreed.start_parameters
    counted = sites.encode(encoding, tuple(summaries), begin)
    refused |= counted.reasons
    if agreed is None:
        agreed = rule.agree(encoding, summaries, counted.records, refused)
        if encoding.is_additive:
            plain = replace(rule.agreement(plan, agreed, counted.records), refused=refused)
            chosen, class_bytes = agree_on_class(plain, sites, folder / NOTICE_FILE)
            agreed = with_class(agreed, chosen, plan, class_bytes)
            counted = sites.encode(agreed.encoding, tuple(agreed.counts), agreed.start_parameters)
            refused |= counted.reasons
            if needs_learning_rate(plan.runs) and agreed.learning_rate is None:
                rate, more = agree_on_rate(
                    plan, agreed.encoding, agreed.counts, agreed.lengths, sites
                )
                refused |= more
                agreed = replace(agreed, learning_rate=rate)
        write_record(folder / AGREEMENT_FILE, agreed)
        senders: Sequence[str] = tuple(agreed.counts)
    else:
        senders = rule.returned(agreed, counted.records, refused)
    if agreed.learning_rate is not None:
        plan = replace(plan, runs=with_rate(plan.runs, agreed.learning_rate))
        refused |= sites.take_rate(agreed.learning_rate, senders)
    return replace(rule.agreement(plan, agreed, counted.records), refused=refused)


class ExactCensus:
    """Every sender's counts are known, and compared with its summary."""

    def __init__(self, plan: NetworkPlan, sites: Sites) -> None:
        self._plan, self._sites = plan, sites

    def encoding(self, summaries: dict[str, SiteSummary], refused: dict[str, str]) -> Encoding:
        """Return the encoding of all rows; it is that of the pooled rows.

        Sites that are refused on the way lose their summary.
        """
        plan = self._plan
        check_enough(plan, len(summaries), refused)
        total = reduce(add, summaries.values())
        _check_any_rows(total)
        check_same_codes(summaries, plan.schema)
        bins = None
        if plan.model.has_codes:
            bins = agree_on_bins(plan.schema, self._sites, summaries, refused)
            check_enough(plan, len(summaries), refused)
            total = reduce(add, summaries.values())
        encoding = agree_on_encoding(plan.schema, total, bins)
        encoding = with_directions(encoding, plan.model.monotone)
        _check_small_groups(plan, encoding, summaries)
        return encoding

    def agree(
        self, encoding: Encoding, summaries: Summaries, counts: Counts, refused: dict[str, str]
    ) -> Agreed:
        """Return what a new run's sites agree on, without those that contradict themselves."""
        plan, groups = self._plan, len(encoding.groups)
        lines = {site: vector.tolist() for site, vector in counts.items()}
        set_aside = {site: line[groups:] for site, line in lines.items() if line[groups:]}
        train = {site: line[:groups] for site, line in lines.items()}
        train = _drop_oversized(train, set_aside, plan, refused)
        summed = {site: encoding.count(summaries[site].group_counts) for site in train}
        train = _drop_mismatches(train, summed, "counts other groups than its summary had", refused)
        lengths = {site: row_lengths(summaries[site], encoding) for site in train}
        rate = None
        if needs_learning_rate(plan.runs) and not encoding.is_additive:
            rate, more = agree_on_rate(plan, encoding, train, lengths, self._sites)
            refused |= more
            train = {site: line for site, line in train.items() if site not in more}
        _check_groups_left(encoding, train, refused)
        set_aside = {site: line for site, line in set_aside.items() if site in train}
        return Agreed(encoding, train, rate, lengths, set_aside)

    def returned(self, agreed: Agreed, counts: Counts, refused: dict[str, str]) -> Sequence[str]:
        """Return the senders that are as they were when the run began."""
        late = [site for site in counts if site not in agreed.counts]
        refused |= {site: f"{site} was absent when this run began; skipped" for site in late}
        lines = {site: vector.tolist() for site, vector in counts.items() if site not in late}
        before = {
            site: [*line, *agreed.validation.get(site, ())] for site, line in agreed.counts.items()
        }
        fault = "has another table than when this run began"
        return tuple(_drop_mismatches(lines, before, fault, refused))

    def agreement(self, plan: NetworkPlan, agreed: Agreed, counts: Counts) -> Agreement:  # noqa: ARG002 - those of the run's beginning count
        """Return what the rounds need."""
        task = task_of(plan, agreed.encoding)
        linear = linear_structure_of(task)
        lengths = tuple(agreed.lengths.get(site, UNKNOWN_LENGTHS) for site in plan.senders)
        rows = agreed.rows(plan.senders)
        # Of all rows of the sites that have any of the group.
        squares = torch.tensor([each.rows**2 for each in lengths], dtype=torch.float64)
        by_group = torch.where(rows > 0, squares[:, None], 0.0).sum(dim=0).sqrt()
        if agreed.encoding.is_additive:
            # All coded rows are equally long.
            by_group = coded_lengths(agreed.encoding, rows.sum(dim=0))
        group_curvature = None
        if agreed.learning_rate is not None and linear is not None:
            # A rate is at least half of what the largest eigenvalue allows, unless the first
            # direction of the power iteration is orthogonal to its eigenvector to nine digits.
            largest = 2.0 / float(agreed.learning_rate)
            group_curvature = largest * rows.sum(dim=0).double()
        return Agreement(
            plan,
            agreed.encoding,
            replace(
                agreed.census(plan.senders),
                linear=linear,
                linear_start=linear_start_of(task),
                row_lengths=by_group,
            ),
            row_lengths=lengths,
            validation_rows=agreed.validation_rows(plan.senders),
            group_curvature=group_curvature,
            start=agreed.start_parameters,
        )


class NoisyCensus:
    """Rows by group are known with noise, over all sites together."""

    def __init__(self, plan: NetworkPlan) -> None:
        self._plan, self._mechanism = plan, mechanism_of_plan(plan)

    def encoding(self, summaries: Summaries, refused: dict[str, str]) -> Encoding:
        """Return the encoding of all rows; how many rows a group has is not known."""
        plan = self._plan
        if ALL_SITES not in summaries or plan.privacy is None:
            raise InputError(
                f"too few of {len(plan.sites)} sites can take part, at least {plan.minimum_sites} "
                f"are needed ({'; '.join(refused.values())})"
            )
        total = summaries[ALL_SITES]
        _check_any_rows(total)
        plan.privacy.check_data(total.rows, len(plan.sites))
        # Classes are as the schema lists them: which of them occur is not asked.
        classes = range(max(len(plan.schema.target.classes), 1))
        groups = {group for group, _ in total.strata}
        total = replace(total, strata={(group, label): 1 for group in groups for label in classes})
        # The noisy census says which groups are too small.
        return replace(agree_on_encoding(plan.schema, total), small_groups=())

    def agree(
        self,
        encoding: Encoding,
        summaries: Summaries,  # noqa: ARG002 - they have no counts
        counts: Counts,
        refused: dict[str, str],
    ) -> Agreed:
        """Return what a new run's sites agree on."""
        self.returned(Agreed(encoding, {}, None), counts, refused)
        census, rate = self._census(encoding, counts[ALL_SITES]), None
        if needs_learning_rate(self._plan.runs):
            loss = task_of(self._plan, encoding).loss
            rate = rate_from_census(self._mechanism, census, loss)
        return Agreed(encoding, {ALL_SITES: census.counts[0].tolist()}, rate)

    def returned(self, agreed: Agreed, counts: Counts, refused: dict[str, str]) -> Sequence[str]:  # noqa: ARG002 - noise hides what changed
        """Return that all sites are there, as the total of their counts is."""
        if ALL_SITES not in counts:
            raise InputError(
                f"the sites did not count their rows ({'; '.join(refused.values())}); resume the "
                "run"
            )
        return (ALL_SITES,)

    def agreement(self, plan: NetworkPlan, agreed: Agreed, counts: Counts) -> Agreement:
        """Return what the rounds need."""
        census = self._census(agreed.encoding, counts[ALL_SITES])
        return Agreement(plan, agreed.encoding, census, row_lengths=(UNKNOWN_LENGTHS,))

    def minimum_group(self, agreed: Agreed) -> int:
        """Return how many rows a group of a run needed to be played for."""
        counts = torch.tensor(agreed.counts[ALL_SITES], dtype=torch.float64)
        linear = linear_structure_of(task_of(self._plan, agreed.encoding))
        vector = torch.cat([counts, packed_zeros(linear)])
        return self._census(agreed.encoding, vector).minimum_group

    def _census(self, encoding: Encoding, vector: Tensor) -> Census:
        """Return the census from noisy rows by group and, if there is one, the sum of x x'."""
        groups, task = len(encoding.groups), task_of(self._plan, encoding)
        # What is known without any row.
        without_rows = Census(
            torch.ones(1, groups, dtype=torch.int64),
            len(self._plan.schema.target.classes),
            linear=linear_structure_of(task),
            minimum_group=self._plan.schema.minimum_included,
        )
        return noisy_census(
            self._mechanism,
            vector[:groups],
            vector[groups:],
            known=without_rows,
            parameters=task.initial_parameters.numel(),
        )


def _check_any_rows(total: SiteSummary) -> None:
    if total.rows == 0:
        raise InputError("no site has a training row; give at least one site with data")


def _drop_oversized(
    reported: dict[str, list[int]],
    set_aside: Mapping[str, list[int]],
    plan: NetworkPlan,
    refused: dict[str, str],
) -> dict[str, list[int]]:
    """Return the sites that set no more rows aside than the plan's share allows."""
    for site, own in set_aside.items():
        most = max_rows_set_aside(plan, sum(reported[site]), plan.validation, 1)
        if min(own) < 0 or sum(own) > most:
            refused[site] = (
                f"{site} counts {sum(own):,} validation rows and {sum(reported[site]):,} "
                f"training rows, at most {most:,} are possible; refused"
            )
    return {site: own for site, own in reported.items() if site not in refused}


def _drop_mismatches(
    reported: Mapping[str, list[int]],
    expected: Mapping[str, Sequence[int]],
    fault: str,
    refused: dict[str, str],
) -> dict[str, list[int]]:
    """Return the sites that reported what was expected; note why the others are refused."""
    fitting = {site: own for site, own in reported.items() if own == expected.get(site)}
    refused |= {site: f"{site} {fault}; refused" for site in reported if site not in fitting}
    return fitting


def _check_small_groups(
    plan: NetworkPlan, encoding: Encoding, summaries: Mapping[str, SiteSummary]
) -> None:
    """Stop before the first round if an included group has so few rows that they would dominate.

    Groups that the configuration treats as small are not included.
    """
    least = plan.site_rules.abort_below
    counts = {site: encoding.count(own.group_counts) for site, own in summaries.items()}
    for number, key in enumerate(encoding.groups):
        rows = sum(own[number] for own in counts.values())
        if rows < least and key not in encoding.small_groups:
            having = [site for site, own in counts.items() if own[number]]
            raise InputError(
                f"group '{group_name(key, plan.schema)}' has {rows:,} training rows in all, at "
                f"{', '.join(having)}, fewer than {least}: raise minimum_size or set small in "
                "[groups], let its sites merge small groups, list the values of groups in the "
                "configuration, or lower --abort-below"
            )


def _check_groups_left(
    encoding: Encoding, counts: Mapping[str, Sequence[int]], refused: Mapping[str, str]
) -> None:
    """Stop if only refused sites have a group: nothing could be learned about it."""
    left = [sum(own) for own in zip(*counts.values(), strict=True)]
    for name, rows in zip(encoding.group_names, left or [0] * len(encoding.groups), strict=True):
        if rows == 0:
            raise InputError(
                f"no remaining site has group '{name}' ({'; '.join(refused.values())}); correct "
                "that site, or start a run without it"
            )
