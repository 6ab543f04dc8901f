"""Small saved models with every kind of feature, drawn at random."""

from dataclasses import replace

import torch
from torch import nn

from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.additive.model import Pair
from fedminmax.core.models import Mixture, linear_or_mlp
from fedminmax.data.tables.encode import model_for_predictions
from fedminmax.data.tables.encoding import (
    BinnedQuantity,
    CodedCategory,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
    Scale,
)
from fedminmax.data.tables.plain_fit import inputs_of, plain_fit
from fedminmax.exports.saved_model import SavedModel

FEATURES = (
    Feature("age", Kind.NUMERIC),
    Feature("ward", Kind.CATEGORY, ("a", "b")),
    Feature("since", Kind.DATE),
    Feature("smoker", Kind.BOOLEAN),
)
# A gap, an unlisted category, a code and a text for missing values, and far values.
ROWS = {
    "age": ["30.5", "", "70", "-999", "4000", "NA"],
    "ward": ["a", "b", "", "elsewhere", "NA", "a"],
    "since": ["2021-05-01", "2022-01-31", "", "1969-12-31", "2020-02-29", "2030-01-01"],
    "smoker": ["yes", "no", "", "1", "0", "true"],
}
ENCODED = (
    EncodedQuantity("age", 50.0, 10.0, varies=True, flags_missing=True),
    EncodedCategory("ward", ("a", "b"), flags_missing=True),
    EncodedQuantity("since", 19_000.0, 100.0, varies=True, flags_missing=False),
    EncodedQuantity("smoker", 0.5, 0.5, varies=True, flags_missing=False),
)


def saved_model(
    classes: tuple[str, ...],
    hidden: tuple[int, ...] = (),
    members: int = 1,
    features: tuple[EncodedQuantity | EncodedCategory, ...] = ENCODED,
) -> SavedModel:
    schema = Schema(Target("y", classes), FEATURES, (Protected("sex"),))
    scale = None if classes else Scale(1e4, 25.0)
    encoding = Encoding(schema, features, (("f",), ("m",)), target_scale=scale, dropped=())
    torch.manual_seed(0)
    models = [_drawn(len(encoding.names), encoding.outputs, hidden) for _ in range(members)]
    whole = models[0] if members == 1 else Mixture(models, classifies=bool(classes))
    return SavedModel(
        whole.eval(),
        encoding,
        kind="mlp",
        hidden=hidden,
        members=members,
        loss="brier",
        iterate="last",
    )


CODED = (
    BinnedQuantity("age", (18.0, 30.5, 50.0, 65.0), flags_missing=True, fallback=2),
    CodedCategory("ward", ("a", "b"), flags_missing=True),
    BinnedQuantity("since", (18_000.0, 18_700.5, 19_000.0), flags_missing=False, fallback=1),
    BinnedQuantity("smoker", (0.5,), flags_missing=False, fallback=0),
)
PAIRS = (
    Pair(0, 1, (0, 0, 1, 1, 2, 3), (0, 1, 2, 2), 1.0),
    Pair(2, 3, (0, 1, 2, 0), (0, 1), 1.0),
)


def saved_additive_model(classes: tuple[str, ...], members: int = 1) -> SavedModel:
    """An additive model of the same table, with effects drawn at random."""
    schema = Schema(Target("y", classes), FEATURES, (Protected("sex"),))
    scale = None if classes else Scale(1e4, 25.0)
    encoding = Encoding(
        schema,
        CODED,
        (("f",), ("m",)),
        target_scale=scale,
        dropped=(),
        pairs=PAIRS,
        records=500,
    )
    codes = len(encoding.names)
    scores = encoding.outputs if encoding.outputs > 2 else 1
    records = [7.0 * code for code in range(codes)]
    fit = plain_fit(encoding.blocks, records, [[0.25] * codes] * scores)
    encoding = replace(encoding, plain_fit=fit)
    torch.manual_seed(0)
    models = [model_for_predictions(encoding, ()) for _ in range(members)]
    for model in models:
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    whole = models[0] if members == 1 else Mixture(models, classifies=bool(classes))
    return SavedModel(
        whole.eval(),
        encoding,
        kind="additive",
        hidden=(),
        members=members,
        loss="cross_entropy",
        iterate="last",
    )


def saved_network_on_effects(classes: tuple[str, ...]) -> SavedModel:
    """A network whose inputs are the effects of that additive model."""
    encoding = saved_additive_model(classes).encoding
    effects = torch.randn(encoding.scores, len(encoding.names), dtype=torch.float64)
    counts = torch.arange(1.0, len(encoding.names) + 1.0)
    encoding = replace(encoding, inputs=inputs_of(encoding.blocks, effects, counts))
    return SavedModel(
        _drawn(len(encoding.names), encoding.outputs, (5, 4)).eval(),
        encoding,
        kind="mlp",
        hidden=(5, 4),
        members=1,
        loss="cross_entropy",
        iterate="last",
    )


def _drawn(features: int, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    model = linear_or_mlp(features, outputs, hidden)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model
