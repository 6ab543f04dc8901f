"""A saved model as ONNX: from encoded features, or raw columns, to probabilities or quantities.

The models here are sums of effects, or chains of affine maps and ReLU, so their graph is written
directly: torch's own exporter needs further packages, and seconds, for the same few nodes.

The encoding of a table's columns as nodes of an ONNX graph, so that raw columns go in.

Every column is an input of its own, of shape [rows, 1]: numbers, booleans (0 or 1) and dates (days
since 1970-01-01, ONNX has none) as float64 with NaN where a value is missing, categories as strings
with "" where one is missing. The configuration's missing values count as missing, too. ONNX cannot
parse text, so strings must be written as they are listed; besides that, the spellings that
``_spellings`` makes of them are known, and all others are none of the categories.

Of an additive model, the code of a number is how many edges of its bins it reaches.
"""

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper
from torch import Tensor, nn

from fedminmax.config.file_format import spellings
from fedminmax.config.schema import Kind, Schema
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes
from fedminmax.core.models import Mixture
from fedminmax.data.tables.encoding import (
    BinnedQuantity,
    CodedCategory,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
)
from fedminmax.data.tables.parse_columns import missing_codes
from fedminmax.data.tables.plain_fit import SCALE
from fedminmax.exports.saved_model import SavedModel

ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 3


class Graph:
    """Nodes and constants under numbered names."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"node_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [name], **attributes))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name


def column_inputs(encoding: Encoding) -> list[ValueInfoProto]:
    """Return the inputs: a column each, in the order of the features that the model uses."""
    return [
        helper.make_tensor_value_info(
            feature.column,
            TensorProto.STRING
            if isinstance(feature, EncodedCategory | CodedCategory)
            else TensorProto.DOUBLE,
            ["rows", 1],
        )
        for feature in encoding.features
    ]


def add_encoder(graph: Graph, encoding: Encoding) -> str:
    """Add nodes from the columns to encoded features or codes, and return their name."""
    if encoding.is_coded:
        codes = _codes(graph, encoding)
        return _effects(graph, codes, encoding) if encoding.inputs else codes
    parts: list[str] = []
    for feature in encoding.features:
        if isinstance(feature, EncodedCategory):
            parts.append(_category(graph, feature, encoding.schema))
        elif isinstance(feature, EncodedQuantity):
            parts += _quantity(graph, feature, encoding.schema)
    return graph.add("Concat", *parts, axis=1)


def about_columns(encoding: Encoding) -> dict[str, str]:
    """Return what the inputs are, for the file's metadata."""
    kinds = {own.column: own.kind.value for own in encoding.schema.features}
    words = {
        Kind.NUMERIC.value: "number, NaN if missing",
        Kind.BOOLEAN.value: "0 or 1, NaN if missing",
        Kind.DATE.value: "days since 1970-01-01, NaN if missing",
        Kind.CATEGORY.value: "text as listed, empty if missing",
    }
    return {
        "inputs": json.dumps({own.column: words[kinds[own.column]] for own in encoding.features})
    }


def _codes(graph: Graph, encoding: Encoding) -> str:
    """Add the code of each column, then of each pair, as one table [rows, blocks]."""
    parts: list[str] = []
    for feature in encoding.features:
        if isinstance(feature, CodedCategory):
            parts.append(_number_of_category(graph, feature, encoding.schema))
        elif isinstance(feature, BinnedQuantity):
            parts.append(_bin(graph, feature, encoding.schema))
    for pair in encoding.pairs:
        first, second = (
            graph.add("Gather", graph.constant(np.array(cells)), parts[column], axis=0)
            for cells, column in (
                (pair.first_cells, pair.first),
                (pair.second_cells, pair.second),
            )
        )
        line = graph.add("Mul", first, graph.constant(np.array(pair.width)))
        parts.append(graph.add("Add", line, second))
    return graph.add("Concat", *parts, axis=1)


def _effects(graph: Graph, codes: str, encoding: Encoding) -> str:
    """Add a network's inputs, which it looks up by code."""
    parts, totals = [], []
    for block, lines in enumerate(encoding.inputs):
        place = graph.constant(np.array(block))
        code = graph.add("Gather", codes, place, axis=1)
        own = graph.add("Gather", graph.constant(np.array(lines).T.copy()), code, axis=0)
        parts.append(graph.add("Mul", own, graph.constant(np.array(SCALE))))
        scores = np.arange(encoding.scores)
        totals.append(graph.add("Gather", own, graph.constant(scores), axis=1))
    total = reduce(lambda before, own: graph.add("Add", before, own), totals)
    return graph.add("Cast", graph.add("Concat", *parts, total, axis=1), to=TensorProto.FLOAT)


def _bin(graph: Graph, feature: BinnedQuantity, schema: Schema) -> str:
    value = _with_gaps(graph, feature.column, schema)
    missing = len(feature.edges) + 1 if feature.flags_missing else feature.fallback
    if feature.edges:
        reached = graph.add("GreaterOrEqual", value, graph.constant(np.array([feature.edges])))
        ones = graph.add("Cast", reached, to=TensorProto.INT64)
        code = graph.add("ReduceSum", ones, graph.constant(np.array([1])), keepdims=1)
    else:
        code = graph.constant(np.array(0))
    is_missing = graph.add("IsNaN", value)
    return graph.add("Where", is_missing, graph.constant(np.array(missing)), code)


def _quantity(graph: Graph, feature: EncodedQuantity, schema: Schema) -> Iterator[str]:
    """Yield the parts of one number, in double precision until they are complete."""
    value = _with_gaps(graph, feature.column, schema)
    missing = graph.add("IsNaN", value)
    if feature.varies:
        centred = graph.add("Sub", value, graph.constant(np.array(feature.mean)))
        scaled = graph.add("Div", centred, graph.constant(np.array(feature.deviation)))
        scaled = graph.add("Where", missing, graph.constant(np.array(0.0)), scaled)
        yield graph.add("Cast", scaled, to=TensorProto.FLOAT)
    if feature.flags_missing:
        yield graph.add("Cast", missing, to=TensorProto.FLOAT)


def _with_gaps(graph: Graph, column: str, schema: Schema) -> str:
    """Add NaN where a number stands for a missing value."""
    value = column
    kind = next(own.kind for own in schema.features if own.column == column)
    for code in missing_codes(schema.missing_of(column)) if kind is Kind.NUMERIC else []:
        is_code = graph.add("Equal", value, graph.constant(np.array(code)))
        value = graph.add("Where", is_code, graph.constant(np.array(np.nan)), value)
    return value


def _category(graph: Graph, feature: EncodedCategory, schema: Schema) -> str:
    """Add a lookup: the line of a text in a matrix of zeros and ones."""
    width = len(feature.names)
    # The last line is of texts that are none of the categories.
    lines = np.vstack([np.eye(width, dtype=np.float32), np.zeros((1, width), np.float32)])
    number = _number_of_category(graph, feature, schema)
    picked = graph.add("Gather", graph.constant(lines), number, axis=0)
    return graph.add("Squeeze", picked, graph.constant(np.array([1])))


def _number_of_category(
    graph: Graph, feature: EncodedCategory | CodedCategory, schema: Schema
) -> str:
    """Add the number of a text: its category, then that of missing values, then of all others."""
    # Without a flag for missing values, their number is that of all others.
    numbers = dict.fromkeys(["", *schema.missing_of(feature.column)], len(feature.categories))
    for number, category in enumerate(feature.categories):
        for text in _spellings(category, schema):
            numbers.setdefault(text, number)
    for text, category in schema.maps.get(feature.column, {}).items():
        if category in feature.categories:
            numbers[text] = feature.categories.index(category)
    return graph.add(
        "LabelEncoder",
        feature.column,
        domain=ML_DOMAIN,
        keys_strings=list(numbers),
        values_int64s=list(numbers.values()),
        default_int64=len(feature.categories) + feature.flags_missing,
    )


def _spellings(category: str, schema: Schema) -> list[str]:
    """Return texts that are read as this category, the listed one first.

    They are candidates, of which those remain that have the same value: 1.0 for 1, True for true.
    """
    shorter = category.removesuffix(".0")
    words = {"1": ("true", "True", "TRUE"), "0": ("false", "False", "FALSE")}
    numbers = {"true": "1", "false": "0"}
    candidates = [
        category,
        shorter,
        f"{shorter}.0",
        *words.get(shorter, ()),
        *filter(None, [numbers.get(category.lower())]),
        *(category.lower(), category.upper(), category.title(), category.capitalize()),
    ]
    read = spellings(pl.Series(list(dict.fromkeys(candidates)), dtype=pl.String))
    same = "folded" if schema.merge_spellings else "value"
    own = read.filter(pl.col("spelled") == category)[same].item()
    return read.filter(pl.col(same) == own)["spelled"].to_list()


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
    graph, classifies = Graph(), bool(saved.classes)
    encoded = CODES if saved.encoding.is_additive else INPUT
    features = add_encoder(graph, saved.encoding) if columns else encoded
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
        domains.append(helper.make_opsetid(ML_DOMAIN, ML_OPSET))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "fedminmax",
            column_inputs(encoding) if columns else [_encoded_input(encoding)],
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
    helper.set_model_props(model, about | (about_columns(encoding) if columns else {}))
    checker.check_model(model)
    return model


def _mean(graph: Graph, outputs: Sequence[str]) -> str:
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


def _member(graph: Graph, features: str, model: nn.Module, *, classifies: bool) -> str:
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


def _sum_of_effects(graph: Graph, codes: str, model: AdditiveModel) -> str:
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
