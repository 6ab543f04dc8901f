"""What the engine makes of the bytes of a message: the few types that a run needs, and no others.

The engine's format (FOBS, over msgpack) names a class with each object, and how to build it. It
builds what it has a builder for, and that grows with every module that is imported: file names that
are read when a reply repeats them, arrays that are fetched from an address in the message, files
that are written to a folder for all users. Our own messages are bytes in a dictionary.
"""

from typing import Any

from nvflare.fuel.utils.fobs import fobs, lobs

# By the names that travel.
TYPES = frozenset(
    {
        "tuple",
        "nvflare.apis.client.Client",
        "nvflare.apis.fl_context.FLContext",
        "nvflare.apis.job_def.JobMetaKey",
        "nvflare.apis.shareable.Shareable",
        "nvflare.fuel.utils.fobs.datum.DatumRef",
        "nvflare.private.admin_defs.Message",
    }
)
SECTIONS = frozenset({lobs.MARKER_MAIN, lobs.MARKER_DATUM_TEXT, lobs.MARKER_DATUM_BLOB})
_engine_unpack = fobs.Packer.unpack
_engine_section = lobs._get_one_section


def unpack_allowed(packer: Any, value: Any) -> Any:
    """Do what the engine's own does, for a type of the list."""
    if type(value) is dict and fobs.FOBS_TYPE in value and value[fobs.FOBS_TYPE] not in TYPES:
        raise ValueError(f"type {ascii(value[fobs.FOBS_TYPE])[:100]} is refused")
    return _engine_unpack(packer, value)


def read_allowed_section(stream: Any, expect_datum: bool) -> Any:  # noqa: FBT001 - the engine's
    """Do what the engine's own does; a part becomes no file, and nothing that is fetched."""
    header, *rest = _engine_section(stream, expect_datum)
    if header and (header.marker not in SECTIONS or header.dot > 0):
        raise ValueError(f"a part of kind {header.marker}, {header.dot} is refused")
    return header, *rest
