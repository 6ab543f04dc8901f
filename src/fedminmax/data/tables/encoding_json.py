"""An encoding as JSON text and back, for the folder of a trained model."""

import math
from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.data.tables.encoding import EncodedCategory, EncodedQuantity, Encoding
from fedminmax.data.tables.groups import merged_key
from fedminmax.data.tables.schema import Kind


def encoding_as_json(encoding: Encoding) -> str:
    """Write the encoding with its schema; every number comes back as it was."""
    return TypeAdapter(Encoding).dump_json(encoding, indent=2).decode()


def encoding_from_json(text: str, source: str) -> Encoding:
    """Read an encoding, or say that the file is damaged."""
    try:
        encoding = TypeAdapter(Encoding).validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{source} is no encoding of this version ({where or 'not JSON'}); train anew"
        ) from error
    for fault in _contradictions(encoding):
        raise InputError(f"{source} is damaged: its encoding {fault}; train anew")
    return encoding


def _contradictions(encoding: Encoding) -> Iterator[str]:
    """Say what no encoding that was agreed on for its schema can have."""
    known = {feature.column: feature for feature in encoding.schema.features}
    if len({feature.column for feature in encoding.features}) < len(encoding.features):
        yield "has a feature twice"
    for feature in encoding.features:
        like = known.get(feature.column)
        if like is None or (like.kind is Kind.CATEGORY) != isinstance(feature, EncodedCategory):
            yield f"has a feature '{feature.column}' that its schema does not have"
        elif isinstance(feature, EncodedCategory):
            if not {*feature.categories} <= {*like.categories}:
                yield f"has categories of '{feature.column}' that its schema does not have"
        elif not _is_scale(feature):
            yield f"has no usable mean and deviation of '{feature.column}'"
    columns = len(encoding.schema.protected)
    if not encoding.groups or any(len(key) != columns for key in encoding.group_numbers):
        yield "has groups that its schema does not have"
    if len({*encoding.groups}) < len(encoding.groups):
        yield "has a group twice"
    if not {*encoding.small_groups} <= {*encoding.groups}:
        yield "has small groups that are none of its groups"
    if {*encoding.merged_groups} & {*encoding.groups} or (
        encoding.merged_groups and merged_key(encoding.schema) not in encoding.groups
    ):
        yield "has merged groups that are not merged"
    if (encoding.target_scale is not None) != encoding.schema.target.is_quantity:
        yield "has another kind of target than its schema"


def _is_scale(feature: EncodedQuantity) -> bool:
    finite = math.isfinite(feature.mean) and math.isfinite(feature.deviation)
    return finite and (feature.deviation > 0 or not feature.varies)
