"""Who looks after the server and the sites while a run goes on."""

from typing import Protocol


class Participants(Protocol):
    """The server and the sites, as far as the coordinator can do something about them."""

    def check(self) -> None:
        """Raise an error if waiting for them is of no use."""
        ...

    def lost(self) -> bool:
        """Tell whether one of them has died."""
        ...

    def revive(self) -> None:
        """Start whoever has died."""
        ...


class Elsewhere:
    """Participants on other machines, where `start` commands bring back what dies."""

    def check(self) -> None:
        """Nothing is known from here."""

    def lost(self) -> bool:
        """Tell nothing: the engine says who is there."""
        return False

    def revive(self) -> None:
        """Leave it to whoever runs them."""
