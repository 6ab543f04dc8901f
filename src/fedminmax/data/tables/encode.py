"""Encode rows as tensors, with an encoding that all sites share.

The model that training starts from, for rows with a given encoding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel, Block, codes_with_pairs
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, counted_each, new_tensor, portions, taken
from fedminmax.core.models import linear_or_mlp
from fedminmax.core.text import counted, first_few, quoted
from fedminmax.data.tables.encoding import (
    CodedCategory,
    CodedFeature,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
)
from fedminmax.data.tables.groups import group_name
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows
from fedminmax.data.tables.plain_fit import network_rows

MAX_DEVIATIONS = 10.0


def encode(rows: ParsedRows, encoding: Encoding, owner: str) -> Examples:
    """Return the rows as examples: x in float32 or codes, y as class numbers or scaled numbers."""
    x = encode_features(rows.features, encoding)
    return Examples(x, _encode_target(rows, encoding), _encode_groups(rows, encoding, owner))


def merged_numbers(rows: ParsedRows, encoding: Encoding) -> Tensor:
    """Return the number of each row's merged group; -1 if it is in none."""
    numbers = {key: number for number, key in enumerate(encoding.merged_groups)}
    number_of = np.array([numbers.get(key, -1) for key in rows.group_keys], np.int64)
    return torch.from_numpy(taken(number_of, rows.group))


def drop_unknown_groups(rows: ParsedRows, encoding: Encoding) -> tuple[ParsedRows, dict[str, int]]:
    """Return the rows of groups known from training, and counts of the others by group name."""
    trained = encoding.group_numbers
    is_known = np.array([key in trained for key in rows.group_keys], dtype=bool)
    counts = counted_each(rows.group, len(rows.group_keys)).tolist()
    skipped = {
        group_name(key, encoding.schema): count
        for key, is_trained, count in zip(rows.group_keys, is_known, counts, strict=True)
        if count and not is_trained
    }
    return (rows.take(np.flatnonzero(is_known[rows.group])) if skipped else rows), skipped


def encode_features(rows: FeatureRows, encoding: Encoding) -> Tensor:
    """Return only x, which is all that a prediction needs; codes for an additive model."""
    if encoding.is_coded:
        x = _new_rows(rows.count, encoding)
        for part in portions(rows.count):
            x[part] = _with_pairs(torch.from_numpy(_codes(rows, encoding, part)), encoding)
        return x
    dense = np.zeros((rows.count, len(encoding.names)), np.float32)
    start = 0
    for feature in encoding.features:
        width = len(feature.names)
        own = dense[:, start : start + width]
        if isinstance(feature, EncodedCategory):
            of_rows = rows.codes[feature.column]
            _write_category(own, of_rows, feature, _categories(encoding, feature.column))
        elif isinstance(feature, EncodedQuantity):
            _write_quantity(own, rows.quantities[feature.column], feature)
        start += width
    return torch.from_numpy(dense)


def widened(codes: Tensor, encoding: Encoding) -> Tensor:
    """Return codes without pairs with those of the encoding's pairs, or as a network's inputs."""
    x = _new_rows(len(codes), encoding)
    for part in portions(len(codes)):
        x[part] = _with_pairs(codes[part], encoding)
    return x


def _new_rows(count: int, encoding: Encoding) -> Tensor:
    kind = torch.float32 if encoding.inputs else _kind(encoding)
    return new_tensor((count, len(blank_row(encoding))), kind)


def _with_pairs(codes: Tensor, encoding: Encoding) -> Tensor:
    wide = codes_with_pairs(codes, encoding.pairs)
    return network_rows(wide, encoding.inputs, encoding.scores) if encoding.inputs else wide


def _kind(encoding: Encoding) -> torch.dtype:
    """Return the smallest whole numbers that have all codes, which are the same at all sites."""
    largest = max(block.size for block in encoding.blocks)
    kinds = (torch.uint8, torch.int16, torch.int32)
    return next(kind for kind in kinds if largest - 1 <= torch.iinfo(kind).max)


def _codes(rows: FeatureRows, encoding: Encoding, part: slice) -> NDArray[np.int32]:
    """Return the code of some rows and each feature."""
    features = [feature for feature in encoding.features if isinstance(feature, CodedFeature)]
    codes = np.empty((part.stop - part.start, len(features)), np.int32)
    for column, feature in enumerate(features):
        if isinstance(feature, CodedCategory):
            listed = _categories(encoding, feature.column)
            of_category = rows.codes[feature.column][part]
            codes[:, column] = _code_of_category(feature, listed)[of_category]
        else:
            values = rows.quantities[feature.column][part]
            bins = np.searchsorted(feature.edges, values, side="right")
            missing = len(feature.edges) + 1 if feature.flags_missing else feature.fallback
            codes[:, column] = np.where(np.isnan(values), missing, bins)
    return codes


def _code_of_category(feature: CodedCategory, listed: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the code of each listed category, of a missing value, and of an unlisted one."""
    others = feature.block.size - 1
    numbers = {category: number for number, category in enumerate(feature.categories)}
    missing = len(feature.categories) if feature.flags_missing else others
    return np.array([*(numbers.get(category, others) for category in listed), missing, others])


def distance_warnings(rows: FeatureRows, encoding: Encoding, source: str) -> list[str]:
    """Warn of numbers far from training, for which a model is not made, and of missing values.

    At most one training row in a hundred can be ten deviations from the mean (Chebyshev).
    """
    far, missing = [], []
    for feature in encoding.features:
        if isinstance(feature, EncodedCategory | CodedCategory):
            absent = rows.codes[feature.column] == len(_categories(encoding, feature.column))
        else:
            values = rows.quantities[feature.column]
            absent = np.isnan(values)
            distance = np.abs(values - feature.mean)
            beyond = int((distance > MAX_DEVIATIONS * feature.deviation).sum())
            if beyond and feature.deviation > 0:
                far.append(f"'{feature.column}' in {beyond:,}")
        if absent.any():
            missing.append(f"'{feature.column}' in {int(absent.sum()):,}")
    warnings, of_all = [], f"of {counted(rows.count, 'row')}"
    if far:
        columns = first_few(far, noun="more columns")
        warnings.append(
            f"{source}: values more than {MAX_DEVIATIONS:g} standard deviations from the training "
            f"mean, for which the model was not made: {columns} {of_all}; check units, decimal "
            "marks and thousands separators"
        )
    if missing:
        columns = first_few(missing, noun="more columns")
        warnings.append(f"{source}: missing values: {columns} {of_all}")
    return warnings


def _write_quantity(
    part: NDArray[np.float32], values: NDArray[np.float64], feature: EncodedQuantity
) -> None:
    missing = np.isnan(values)
    if feature.varies:
        scaled = (values - feature.mean) / feature.deviation
        outside = np.abs(scaled) > np.finfo(np.float32).max
        if outside.any():
            raise InputError(
                f"column '{feature.column}' has {counted(int(outside.sum()), 'value')} too far "
                "from the training values to compute with; correct such values"
            )
        part[:, 0] = np.where(missing, 0.0, scaled)
    if feature.flags_missing:
        part[:, -1] = missing


def _write_category(
    part: NDArray[np.float32],
    codes: NDArray[np.int32],
    feature: EncodedCategory,
    categories: tuple[str, ...],
) -> None:
    none = -1
    columns = {category: column for column, category in enumerate(feature.categories)}
    place_of = [columns.get(category, none) for category in categories]
    missing = len(feature.categories) if feature.flags_missing else none
    column = np.array([*place_of, missing, none])[codes]
    rows = np.flatnonzero(column != none)
    part[rows, column[rows]] = 1.0


def _categories(encoding: Encoding, column: str) -> tuple[str, ...]:
    return next(f.categories for f in encoding.schema.features if f.column == column)


def _encode_target(rows: ParsedRows, encoding: Encoding) -> Tensor:
    scale = encoding.target_scale
    if scale is None:
        return torch.from_numpy(np.array(rows.target))
    scaled = (rows.target - scale.mean) / scale.deviation
    return torch.from_numpy(scaled.astype(np.float32))


def _encode_groups(rows: ParsedRows, encoding: Encoding, owner: str) -> Tensor:
    numbers = encoding.group_numbers
    for index, count in enumerate(counted_each(rows.group).tolist()):
        if count and rows.group_keys[index] not in numbers:
            name = group_name(rows.group_keys[index], encoding.schema)
            raise InputError(
                f"{owner}: group '{name}' ({counted(count, 'row')}) has no training row at any "
                f"site; training has {quoted(encoding.group_names)}: remove these rows, or add "
                "such rows to training"
            )
    number_of = np.array([numbers.get(key, 0) for key in rows.group_keys], np.int64)
    return torch.from_numpy(taken(number_of, rows.group))


def initial_model(encoding: Encoding, hidden: Sequence[int], ridge: float) -> nn.Module:
    """Return an additive model of zeros for codes, else a linear one of zeros or a network."""
    if encoding.is_additive:
        return AdditiveModel(
            encoding.outputs, encoding.blocks, records=encoding.records, ridge=ridge
        )
    return linear_or_mlp(len(encoding.names), encoding.outputs, hidden)


def blank_row(encoding: Encoding) -> Tensor:
    """Return an encoded row of zeros."""
    if encoding.is_additive:
        return torch.zeros(len(encoding.blocks), dtype=_kind(encoding))
    return torch.zeros(len(encoding.names))


def model_for_predictions(encoding: Encoding, hidden: Sequence[int]) -> nn.Module:
    """Return the same for a model that is only used: the parameters of an additive one are effects.

    So its file has them, and needs no transform.
    """
    if not encoding.is_additive:
        return linear_or_mlp(len(encoding.names), encoding.outputs, hidden)
    plain = [Block(block.size, rising=block.rising) for block in encoding.blocks]
    return AdditiveModel(encoding.outputs, plain, records=1, ridge=0.0)
