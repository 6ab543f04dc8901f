"""A trained model together with its encoding: from a table to predictions in one call."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.data.tables.any_table import table_from
from fedminmax.data.tables.encode import encode_features
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.file_format import PLAIN, FileFormat
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.data.tables.read_file import Table
from fedminmax.data.tables.score_rows import predictions


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What `fedminmax train` leaves to predict with.

    ``model`` is a torch module of encoded features; several ``members`` make it a mixture.
    """

    model: nn.Module
    encoding: Encoding
    kind: str
    hidden: tuple[int, ...]
    members: int
    loss: str
    iterate: str
    format: FileFormat = PLAIN

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of probabilities; none for a quantity."""
        return self.encoding.schema.target.classes

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that training knew."""
        return self.encoding.group_names

    @property
    def small_group_numbers(self) -> tuple[int, ...]:
        """The numbers of the groups that had too few training rows to be trained for."""
        return tuple(map(self.encoding.groups.index, self.encoding.small_groups))

    def table(self, data: Any) -> Table:
        """Read a file, or take a data frame or a dict of columns."""
        return table_from(data, self.encoding.schema.feature_columns, self.format)

    def encode(self, data: Any) -> Tensor:
        """Return what the model sees of a table [rows, features], in float32."""
        table = data if isinstance(data, Table) else self.table(data)
        return encode_features(parse_features(table, self.encoding.schema), self.encoding)

    def predict_proba(self, data: Any) -> NDArray[np.float64]:
        """Return each class's probability, in the order of ``classes``."""
        if not self.classes:
            raise InputError("the model predicts a quantity, not classes; use predict")
        return self.scores(self.encode(data))

    def predict(self, data: Any) -> NDArray[Any]:
        """Return each row's most probable class, or its quantity in the target's own unit."""
        return self.answers(self.scores(self.encode(data)))

    def scores(self, x: Tensor) -> NDArray[np.float64]:
        """Return probabilities [rows, classes], or quantities [rows], of encoded rows."""
        return predictions(self.model, x, self.encoding)

    def answers(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """Return the classes or quantities that these scores stand for."""
        if not self.classes:
            return scores
        classes: NDArray[Any] = np.array(self.classes)
        answers: NDArray[Any] = classes[scores.argmax(axis=1)]
        return answers
