"""The encoding of a table's columns as nodes of an ONNX graph, so that raw columns go in.

Every column is an input of its own, of shape [rows, 1]: numbers, booleans (0 or 1) and dates (days
since 1970-01-01, ONNX has none) as float64 with NaN where a value is missing, categories as strings
with "" where one is missing. The configuration's missing values count as missing, too. ONNX cannot
parse text, so strings must be written as they are listed; besides that, the spellings that
``_spellings`` makes of them are known, and all others are none of the categories.

Of an additive model, the code of a number is how many edges of its bins it reaches.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from fedminmax.config.schema import Kind, Schema
from fedminmax.config.spellings import spellings
from fedminmax.data.tables.encoding import (
    BinnedQuantity,
    CodedCategory,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
)
from fedminmax.data.tables.parse_columns import missing_codes

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
    if encoding.is_additive:
        return _codes(graph, encoding)
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
