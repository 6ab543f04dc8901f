"""Rounds for TensorBoard: an event file with each group's risk and each weight."""

from collections.abc import Sequence
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from fedminmax.training.round_record import RoundRecord, scalars


class TensorBoardLog:
    """Event files in a folder; earlier events after ``restored_round`` are purged."""

    def __init__(self, folder: Path, groups: Sequence[str], restored_round: int) -> None:
        self._groups = groups
        self._writer = SummaryWriter(folder, purge_step=restored_round + 1)

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        for name, value in scalars(record, self._groups).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
