"""Which groups' risks are named where there is room for few."""

from collections.abc import Iterable

# So many fit beside a bar.
MOST_RISKS = 4


def highest_risks(risks: Iterable[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Return the groups with the highest known risks, the highest first.

    >>> highest_risks([("f", 0.2), ("m", 0.3), ("x", None)])
    [('m', 0.3), ('f', 0.2)]
    """
    known = [(name, risk) for name, risk in risks if risk is not None]
    return sorted(known, key=lambda own: own[1], reverse=True)[:MOST_RISKS]
