"""An encoding as JSON text and back, for the folder of a trained model."""

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.data.tables.encoding import Encoding


def encoding_as_json(encoding: Encoding) -> str:
    """Write the encoding with its schema; every number comes back as it was."""
    return TypeAdapter(Encoding).dump_json(encoding, indent=2).decode()


def encoding_from_json(text: str, source: str) -> Encoding:
    """Read an encoding, or say that the file is damaged."""
    try:
        return TypeAdapter(Encoding).validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{source} is no encoding of this version ({where or 'not JSON'}); train anew"
        ) from error
