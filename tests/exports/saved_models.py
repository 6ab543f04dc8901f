"""Small saved models with every kind of feature, drawn at random."""

import torch
from torch import nn

from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.models import Mixture, linear_or_mlp
from fedminmax.data.tables.encoding import EncodedCategory, EncodedQuantity, Encoding, Scale
from fedminmax.exports.saved_model import SavedModel

FEATURES = (
    Feature("age", Kind.NUMERIC),
    Feature("ward", Kind.CATEGORY, ("a", "b")),
    Feature("since", Kind.DATE),
    Feature("smoker", Kind.BOOLEAN),
)
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


def _drawn(features: int, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    model = linear_or_mlp(features, outputs, hidden)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model
