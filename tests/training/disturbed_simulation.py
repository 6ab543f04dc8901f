"""The simulation of a run in which some replies never arrived, or arrived changed."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torch import Tensor

from fedminmax.core.iterates import initial_iterates
from fedminmax.core.messages import RoundKey, Sums
from fedminmax.methods.method import SelectingState, sums_over_rows, takes_one_step
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.replies import add_up
from tests.network.network_problem import DirectTransport, simulated_federation

# What the server gets of a site's reply in a round: the same, another one, or nothing.
Arrives = Callable[[int, str, Sums], Sums | None]


def disturbed_members(folder: Path, plan: NetworkPlan, arrives: Arrives) -> Tensor:
    """The models that the plan's first run ends with; a method of one question per round."""
    federation = simulated_federation(folder, plan, fused=False)
    method = plan.runs[0].build()
    assert takes_one_step(method) or sums_over_rows(method)
    state = method.init(federation.initial_parameters, federation.census)
    iterates = initial_iterates(federation.initial_parameters)
    for number in range(1, plan.runs[0].rounds + 1):
        order = method.order(state, RoundKey(plan.seed, number))
        replies = [
            arrives(number, site, federation.ask(method, order, [place]).total)
            for place, site in enumerate(plan.sites)
        ]
        state = method.update(state, add_up([reply for reply in replies if reply is not None]))
        iterates = iterates.add(state.parameters)
    if isinstance(state, SelectingState):
        return state.selected
    return iterates.parameters(method.output).unsqueeze(0)


class SilentTransport(DirectTransport):
    """Some sites refuse one endpoint."""

    def __init__(self, folder: Path, endpoint: str, silent: Iterable[str]) -> None:
        super().__init__(folder)
        self._endpoint = endpoint
        self._silent = tuple(silent)

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if endpoint == self._endpoint and site in self._silent:
            raise RefusedError(f"{site} is not connected")
        return super().answer(site, endpoint, payload)
