"""FedAvg: local epochs, then the average of the sites' models, weighted by their rows.

McMahan, Moore, Ramage, Hampson, Arcas: Communication-efficient learning of deep networks from
decentralized data, AISTATS 2017. The defaults are those of Papadaki et al. 2021, Appendix B.
The client fraction C is the participation of the round loop; models are averaged over the
sites that took part.

| symbol          | name                     |
|-----------------|--------------------------|
| E, B, eta       | epochs, batch_size, learning_rate |
| n_k (w - w_k)   | Sums.step                |
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.noise import Unit
from fedminmax.methods.card import LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    LocalTraining,
)


@dataclass(frozen=True, eq=False)
class FedAvgState:
    """theta^t: FedAvg has no adversary."""

    parameters: Tensor

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights."""
        return NO_WEIGHTS


@MethodCard(
    key="fedavg",
    paper="McMahan, Moore, Ramage, Hampson, Arcas, AISTATS 2017",
    optimises="mean risk",
    over=Over.ROWS,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE | LOCAL,
    private_units=(Unit.SITE,),
)
@dataclass(frozen=True)
class FedAvg(LocalTraining):
    """Local epochs (``LocalTraining``) and averaging; ``epochs=1, batch_size=None`` is descent."""

    learning_rate: float = 0.1
    epochs: int = 15
    _: KW_ONLY
    name: str = "FedAvg"

    def __post_init__(self) -> None:
        self.check_training(self.name)

    def init(self, parameters: Tensor, census: Census) -> FedAvgState:  # noqa: ARG002
        """Start from the initial model."""
        return FedAvgState(parameters)

    def order(self, state: FedAvgState, key: RoundKey) -> Order:
        """Broadcast the model alone."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def update(self, state: FedAvgState, total: Sums) -> FedAvgState:
        """Move to the weighted average of the trained models."""
        return FedAvgState(descend(state.parameters, total))
