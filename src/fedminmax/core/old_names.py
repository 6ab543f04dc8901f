"""Names of losses, iterates and rules that earlier versions spelled with hyphens.

A name has one spelling, with underscores, in Python, in files and on the command line. Whatever
reads a name asks here first, so that old files and commands are still understood. Keys of methods,
such as ``fedminmax-fast``, keep their hyphens.
"""

from typing import TypeVar

ValueT = TypeVar("ValueT")

OLD_NAMES = {
    "cross-entropy": "cross_entropy",
    "squared-error": "squared_error",
    "tail-average": "tail_average",
    "own-group": "own_group",
    "leave-out": "leave_out",
    "cross-validation": "cross_validation",
}
FORMER_NAMES = {new: old for old, new in OLD_NAMES.items()}


def current_name(value: ValueT) -> ValueT | str:
    """Return today's spelling of a name; anything else as it came.

    >>> current_name("cross-entropy"), current_name("cross_entropy"), current_name("fedavg-fast")
    ('cross_entropy', 'cross_entropy', 'fedavg-fast')
    """
    return OLD_NAMES.get(value, value) if isinstance(value, str) else value


def former_name(name: str) -> str:
    """Return how earlier versions spelled a name, for digests that they wrote down."""
    return FORMER_NAMES.get(name, name)
