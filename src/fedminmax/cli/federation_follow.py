"""The rounds of a run over a network as they come: risks, weights, who answered, who did not."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from rich.markup import escape

from fedminmax.cli.progress import Display, display
from fedminmax.cli.risk_words import highest_risks
from fedminmax.cli.say import say
from fedminmax.federation.live_round import Event, LiveRound, Notice
from fedminmax.federation.network_log import NetworkRound
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.methods.card import Weights
from fedminmax.methods.catalogue import CARDS


def follow(events: Generator[Event], plan: NetworkPlan) -> None:
    """Show each round on a terminal; say once who did not take part, and which group is unseen.

    Whatever happens here, such as a reader of our words who has had enough, ends the events and
    with them the connection: its threads would keep the command alive for ever.
    """
    shown = -1
    warned: set[str] = set()
    before = [sum(run.rounds for run in plan.runs[:place]) for place in range(len(plan.runs))]
    work = sum(run.rounds for run in plan.runs)
    with closing(events), display("federation", work) as bars:
        for event in events:
            if isinstance(event, Notice):
                say(event.words)
                continue
            number, entry = event.run, event.round
            if number != shown:
                shown = number
                bars.start_run(plan.runs[number].method, plan.runs[number].rounds)
            _show(bars, plan, event)
            bars.show_work(before[number] + entry.round)
            for words in _warnings(entry, event.groups):
                if words not in warned:
                    warned.add(words)
                    say(f"round {entry.round}: {words}")


def _show(bars: Display, plan: NetworkPlan, live: LiveRound) -> None:
    method, entry, groups = plan.runs[live.run].method, live.round, live.groups
    over_groups = CARDS[method].weights is Weights.GROUPS and len(entry.weights) == len(groups)
    weights = dict(zip(groups, entry.weights, strict=True)) if over_groups else {}
    highest = highest_risks(live.risks.items())
    words = ", ".join(
        f"{name} {risk:.3g}" + (f" (weight {weights[name]:.2g})" if name in weights else "")
        for name, risk in highest
    )
    if entry.certificate is not None:
        words += f"; gap {entry.certificate.gap:.1g}"
    answered = f"{len(entry.took_part)} of {len(plan.sites)} sites"
    bars.rename_run(escape(f"{method}, {answered}: {words}"))
    bars.show_round(entry.round)


def _warnings(entry: NetworkRound, groups: Sequence[str]) -> Iterator[str]:
    for reason in entry.refused.values():
        yield f"goes on without it: {reason}"
    for place in entry.unseen:
        yield f"nobody who answered has group '{groups[place]}': its weight is kept"
