"""What determines the numbers of a study; nothing heavy is imported here."""

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class StudyConfig:
    """Everything besides the methods; a folder has runs of one configuration.

    ``widths`` are those of a network's hidden layers, or the channels of its convolutions; a linear
    model has none. With ``folds_by`` "seeds" each fold has its own rows, else all
    ``folds_in_all`` are parts of one training set.
    """

    rows: int
    sites: int
    _: KW_ONLY
    model: str
    widths: tuple[int, ...] = ()
    loss: str = "brier"
    include_protected: bool = False
    folds_by: str = "seeds"
    folds_in_all: int = 0
    seed: int = 0
    device: str = "cpu"

    @property
    def network(self) -> bool:
        """Whether the model is a neural network."""
        return bool(self.widths)


@dataclass(frozen=True)
class PaperSettings:
    """The hyperparameters of the paper's methods; ``min_weight`` is the least weight of a group."""

    learning_rate: float
    adversary_rate: float
    min_weight: float
    epochs: int
    batch_size: int
