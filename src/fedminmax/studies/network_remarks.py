"""What a user must know about a run over a network: who was missing, and whom it did not see."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedminmax.core.counted import counted
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.network_log import NetworkRound
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.network_run import read_outcome
from fedminmax.report.run_folder_records import SiteOfRun
from fedminmax.report.table_results import Remarks

# Of all rows, where there are three sites or more.
LARGE_SHARE = 0.9


def remarks_on(
    rounds: Sequence[NetworkRound], plan: NetworkPlan, fetched: Path, groups: Sequence[str]
) -> Remarks:
    """Return notes and warnings for the results."""
    outcome = read_outcome(fetched)
    silent: dict[str, str] = {}
    if outcome is not None and plan.held_out:
        silent = outcome.refused | outcome.unmeasured
    absent = [
        f"{site} took part in {count:,} of {counted(len(rounds), 'round')}"
        for site, count in _rounds_of(rounds, plan).items()
        if count < len(rounds) and all(run.participation == 1.0 for run in plan.runs)
    ]
    return Remarks(
        (*absent, *_large_shares(fetched)),
        (
            *_unseen(rounds, groups),
            *(f"{reason}: its held-out rows are not in the results" for reason in silent.values()),
        ),
    )


def _large_shares(fetched: Path) -> Iterator[str]:
    """Say whose rows are nearly all there are, as the site itself tells: the model is then its."""
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    rows = {} if agreed is None else {site: sum(own) for site, own in agreed.counts.items()}
    total = sum(rows.values())
    for site, own in rows.items():
        if len(rows) > 2 and own > LARGE_SHARE * total:
            yield f"{site} has {own:,} of all {total:,} training rows: the model is nearly its own"


def sites_of(rounds: Sequence[NetworkRound], plan: NetworkPlan) -> tuple[SiteOfRun, ...]:
    """Return for each site how many rounds it took part in, and how often it did not and why."""
    counts = _rounds_of(rounds, plan)
    reasons = {
        site: Counter(entry.refused[site] for entry in rounds if site in entry.refused)
        for site in plan.sites
    }
    return tuple(
        SiteOfRun(site=site, rounds=counts[site], refused=reasons[site]) for site in plan.sites
    )


def _rounds_of(rounds: Sequence[NetworkRound], plan: NetworkPlan) -> dict[str, int]:
    return {site: sum(site in entry.took_part for entry in rounds) for site in plan.sites}


def _unseen(rounds: Sequence[NetworkRound], groups: Sequence[str]) -> Iterator[str]:
    """Warn of groups that no site told of: the run kept their weights, and learned nothing."""
    for place, name in enumerate(groups):
        numbers = [entry.round for entry in rounds if place in entry.unseen]
        if not numbers:
            continue
        gone = numbers[-1] == rounds[-1].round
        yield (
            f"group '{name}' was not seen in {len(numbers):,} of "
            f"{counted(len(rounds), 'round')}, from "
            f"round {numbers[0]:,} on: its weight was kept, and the model did not learn from it "
            f"there{'; at its end the run no longer saw it' if gone else ''}"
        )
