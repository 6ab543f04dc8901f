"""What a round over a network leaves besides its numbers."""

from dataclasses import dataclass, field


@dataclass
class RoundNotes:
    """What happened in a round: reasons by site, the slowest site's seconds, bytes per site.

    The bytes of all the round's questions and of the longest reply to each are added up.
    """

    refused: dict[str, str] = field(default_factory=dict)
    slowest_seconds: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0
