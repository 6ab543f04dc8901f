"""A saved model as ONNX: from encoded features, or raw columns, to probabilities or quantities.

The models here are sums of effects, or chains of affine maps and ReLU, so their graph is written
directly: torch's own exporter needs further packages, and seconds, for the same few nodes.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, helper
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes
from fedminmax.core.models import Mixture
from fedminmax.data.tables.encoding import Encoding
from fedminmax.exports import onnx_encoder
from fedminmax.exports.saved_model import SavedModel

# Old enough for runtimes of 2023, and sufficient for these nodes.
OPSET, IR_VERSION = 17, 8
INPUT, CODES = "features", "codes"


def write_onnx(path: Path, saved: SavedModel, *, columns: bool = False) -> None:
    """Write the file, in full or not at all; with ``columns`` its inputs are a table's columns."""
    content = onnx_model(saved, columns=columns).SerializeToString()
    write_bytes(path, content)


def onnx_model(saved: SavedModel, *, columns: bool = False) -> ModelProto:
    """Return the graph, with names of features, classes and groups as metadata.

    With ``columns`` the encoding is part of the graph.
    """
    members = list(saved.model.members) if isinstance(saved.model, Mixture) else [saved.model]
    graph, classifies = onnx_encoder.Graph(), bool(saved.classes)
    encoded = CODES if saved.encoding.is_additive else INPUT
    features = onnx_encoder.add_encoder(graph, saved.encoding) if columns else encoded
    outputs = [_member(graph, features, member, classifies=classifies) for member in members]
    result = _mean(graph, outputs)
    encoding = saved.encoding
    if encoding.target_scale is None:
        name, kind = "probabilities", TensorProto.FLOAT
        result = graph.add("Cast", result, to=TensorProto.FLOAT)
    else:
        name, kind = "quantity", TensorProto.DOUBLE
        deviation = graph.constant(np.array(encoding.target_scale.deviation))
        scaled = graph.add("Mul", result, deviation)
        result = graph.add("Add", scaled, graph.constant(np.array(encoding.target_scale.mean)))
    graph.nodes.append(helper.make_node("Identity", [result], [name]))
    domains = [helper.make_opsetid("", OPSET)]
    if columns:
        if name in [own.column for own in encoding.features]:
            raise InputError(f"column '{name}' has the name of the file's output; rename it")
        domains.append(helper.make_opsetid(onnx_encoder.ML_DOMAIN, onnx_encoder.ML_OPSET))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "fedminmax",
            onnx_encoder.column_inputs(encoding) if columns else [_encoded_input(encoding)],
            [helper.make_tensor_value_info(name, kind, ["rows", encoding.outputs])],
            graph.constants,
        ),
        opset_imports=domains,
        ir_version=IR_VERSION,
        producer_name="fedminmax",
    )
    about = {
        "feature_names": json.dumps(encoding.names),
        "target": encoding.schema.target.column,
        "classes": json.dumps(saved.classes),
        "groups": json.dumps(saved.groups),
    }
    helper.set_model_props(model, about | (onnx_encoder.about_columns(encoding) if columns else {}))
    checker.check_model(model)
    return model


def _mean(graph: onnx_encoder.Graph, outputs: Sequence[str]) -> str:
    """Add the mean of the members' outputs; runtimes have no node for it in double precision."""
    total, *others = outputs
    for other in others:
        total = graph.add("Add", total, other)
    return graph.add("Div", total, graph.constant(np.array(float(len(outputs)))))


def _encoded_input(encoding: Encoding) -> ValueInfoProto:
    """Return the input for rows that are encoded already: codes for an additive model."""
    if encoding.is_additive:
        blocks = len(encoding.blocks)
        return helper.make_tensor_value_info(CODES, TensorProto.INT64, ["rows", blocks])
    return helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["rows", len(encoding.names)])


def _member(graph: onnx_encoder.Graph, features: str, model: nn.Module, *, classifies: bool) -> str:
    """Add one model and return the name of its output: probabilities, or a scaled quantity."""
    current = features
    for layer in _layers(model):
        if isinstance(layer, AdditiveModel):
            current = _sum_of_effects(graph, current, layer)
        elif isinstance(layer, nn.Linear):
            weight, bias = (graph.constant(_values(part)) for part in (layer.weight, layer.bias))
            current = graph.add("Gemm", current, weight, bias, transB=1)
        elif isinstance(layer, nn.ReLU):
            current = graph.add("Relu", current)
        else:
            name = type(layer).__name__
            raise InputError(f"a {name} layer cannot be exported; use a linear model or an mlp")
    current = graph.add("Softmax", current, axis=1) if classifies else current
    # With a large mean of the target, a small deviation would lose its digits in single precision.
    return graph.add("Cast", current, to=TensorProto.DOUBLE)


def _sum_of_effects(graph: onnx_encoder.Graph, codes: str, model: AdditiveModel) -> str:
    """Add the sum of the effects of each row's codes, in double precision."""
    offsets = graph.constant(np.array([model.design.offsets]))
    lines = graph.add("Add", codes, offsets)
    table = graph.constant(np.ascontiguousarray(_values(model.effects).T))
    effects = graph.add("Gather", table, lines, axis=0)
    total = graph.add("ReduceSum", effects, graph.constant(np.array([1])), keepdims=0)
    return graph.add("Add", total, graph.constant(_values(model.bias)))


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    return iter(model) if isinstance(model, nn.Sequential) else iter([model])


def _values(tensor: Tensor) -> NDArray[Any]:
    values: NDArray[Any] = tensor.detach().numpy()
    return values
