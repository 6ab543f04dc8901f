"""AFLFast: AFL's objective, minimax over sites, in few rounds.

The objective is that of Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019 (see ``afl``);
the server is FedMinMaxFast's, with sites for groups. It sees each site's own sums.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import GAP, LOOK_AHEAD, Over, Pace, Weights, register
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, OwnLoss, Sender
from fedminmax.methods.shared.fast_server import (
    DEFAULT_GAP,
    FastState,
    after_round,
    ask_for_sums,
    check_fast_settings,
    expect_all_rows,
    is_within,
    start_server,
    sums_of_all_rows,
    with_curvature,
)
from fedminmax.methods.shared.replies import RiskSums


@dataclass(frozen=True, eq=False)
class AFLFastState:
    """The server's state over the sites with rows; ``players`` are their numbers."""

    server: FastState
    players: Tensor
    sites: int

    @property
    def parameters(self) -> Tensor:
        """The next model to try."""
        return self.server.parameters

    @property
    def weights(self) -> Tensor:
        """Lambda by site; 0 for a site without rows."""
        weights = torch.zeros(self.sites, dtype=torch.float64)
        weights[self.players] = self.server.weights
        return weights

    @property
    def selected(self) -> Tensor:
        """The model with the lowest worst risk."""
        return self.server.selected

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the worst site; None if nothing is."""
        proved = self.server.certificate
        return None if proved is None else replace(proved, players="site")

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of the worst site's risk; None if unknown."""
        return self.server.remaining


@register(
    key="afl-fast",
    paper="Mohri et al. 2019's objective, with a prox-linear server (ours)",
    optimises="worst site's risk",
    over=Over.SITES,
    pace=Pace.LOOK_AHEAD,
    minimax=True,
    weights=Weights.SITES,
    absent_keep_weight=False,
    sources=LOOK_AHEAD | GAP,
)
@dataclass(frozen=True)
class AFLFast:
    """Minimax over sites; there is no learning rate to choose. See ``FedMinMaxFast``."""

    curvature: bool = True
    learning_rate: float = 0.001
    _: KW_ONLY
    momentum: float = 0.9
    gap: float = field(default=DEFAULT_GAP, repr=False)
    name: str = "AFLFast"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.OWN_VECTOR, init=False)

    def __post_init__(self) -> None:
        check_fast_settings(self, gap=self.gap)

    def init(self, parameters: Tensor, census: Census) -> AFLFastState:
        """Nothing is known yet: the first round collects the sums of the initial model."""
        players = torch.tensor(census.occupied)
        counts = torch.diag(census.site_counts[players])
        over_sites = Census(
            counts, census.classes, linear=census.linear, row_lengths=_longest_rows(census)
        )
        weights = census.site_shares[players]
        # Sites cannot know which others have no rows: both sides count all of them.
        curvature = with_curvature(self, census.linear, census.sites) is not None
        settings = replace(self, curvature=curvature)
        server = start_server(settings, parameters, over_sites, weights)
        return AFLFastState(server, players, census.sites)

    def is_done(self, state: AFLFastState) -> bool:
        """Return whether the possible improvement is within the gap."""
        return is_within(self.gap, state.server)

    def order(self, state: AFLFastState, key: RoundKey) -> Order:
        """Broadcast the next candidate; sites need no weights."""
        return ask_for_sums(key, state.parameters)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return loss and gradient sums at the broadcast model, with curvature if it is used."""
        linear = with_curvature(self, workspace.linear, site.sites)
        reply = sums_of_all_rows(linear, order, site, [workspace])
        own_loss = torch.zeros(site.sites, dtype=torch.float64)
        own_count = torch.zeros(site.sites, dtype=torch.int64)
        own_loss[site.number] = reply.group_loss.sum()
        own_count[site.number] = len(site.examples)
        return replace(reply, site_loss=own_loss, site_count=own_count)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows, and their loss again as the sender's own."""
        total = float(reply.group_loss.sum())
        expected = expect_all_rows(self, sender.sites, order, sender, reply)
        return replace(expected, own_loss=OwnLoss(sender.rows, total, total))

    def update_from_each(self, state: AFLFastState, replies: Sequence[Sums]) -> AFLFastState:
        """Pass the sites' sums to the server; the last sums of an absent site are kept."""
        total = reduce(add, (replace(reply, step=replies[0].step[:0]) for reply in replies))
        senders = torch.stack([reply.site_count.argmax() for reply in replies])
        places = torch.searchsorted(state.players, senders)
        counts = total.site_count[state.players]
        gradients = torch.zeros(len(counts), len(replies[0].step), dtype=replies[0].step.dtype)
        curvature = torch.zeros(len(counts), len(replies[0].statistics), dtype=torch.float64)
        for place, reply in zip(places.tolist(), replies, strict=True):
            gradients[place] = reply.step
            curvature[place] = reply.statistics
        reported = RiskSums(counts, total.site_loss[state.players], gradients, curvature)
        return replace(state, server=after_round(self, state.server, reported))


def _longest_rows(census: Census) -> Tensor | None:
    """Return at most how long the rows of each site with rows are, as a census has it by group.

    No site has more than all rows: that is what is known of its own. Rounding errors that are
    bounded by it are still far below any gap.
    """
    if census.row_lengths is None:
        return None
    longest = float(census.row_lengths.norm())
    return torch.full((len(census.occupied),), longest, dtype=torch.float64)
