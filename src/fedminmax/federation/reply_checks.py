"""Whether a site's reply can be true: finite, counts within its census, no step out of all bounds.

A refused reply is left out of its round with its site's name and the reason. What no check of one
reply against the others can tell, for example a plausible lie, passes.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from fedminmax.core.messages import Sums
from fedminmax.federation.wire_vectors import RefusedError, check_finite

LARGEST_STEP_RATIO = 1000.0
FEWEST_TO_COMPARE = 3


def check_reply(reply: Sums, place: int, counts: Tensor, site: str) -> None:
    """Refuse what the holder at this place, with these counts by group, cannot have sent."""
    for name in ("step", "group_loss", "holder_loss", "statistics"):
        check_finite(getattr(reply, name), name, site)
    if not (math.isfinite(reply.scale) and math.isfinite(reply.curvature)):
        raise RefusedError(f"{site} sent a scale with NaN or infinity; refused")
    if reply.scale < 0 or reply.gradient_evaluations < 0:
        raise RefusedError(f"{site} sent a negative scale or number of evaluations; refused")
    _check_counts(reply.group_count, counts, "rows of a group", site)
    if bool((reply.group_loss[reply.group_count == 0] != 0).any()):
        raise RefusedError(f"{site} sent a loss for a group that it counts no rows of; refused")
    own = reply.holder_count.new_zeros(len(reply.holder_count))
    if len(own):
        if place >= len(own):
            raise RefusedError(f"{site} sent losses for {len(own)} holders; refused")
        own[place] = counts.sum()
        _check_counts(reply.holder_count, own, "rows of a holder", site)
    if bool((reply.holder_loss[reply.holder_count == 0] != 0).any()):
        raise RefusedError(f"{site} sent a loss for another holder; refused")


def other_lengths(replies: Mapping[str, Sums]) -> dict[str, str]:
    """Return the sites whose vectors are not as long as most others', each with a reason."""
    lengths = {
        site: (len(reply.step), len(reply.holder_loss), len(reply.statistics))
        for site, reply in replies.items()
    }
    if not lengths:
        return {}
    usual, _ = Counter(lengths.values()).most_common(1)[0]
    return {
        site: f"{site} sent vectors of lengths {own}, most others {usual}; refused"
        for site, own in lengths.items()
        if own != usual
    }


def too_large(replies: Mapping[str, Sums], ratio: float) -> dict[str, str]:
    """Return the sites whose step is over ``ratio`` times the median of the others'.

    Steps are compared per unit of their scale: a site with more rows may send a larger sum.
    """
    if len(replies) < FEWEST_TO_COMPARE:
        return {}
    lengths = {site: _length(reply) for site, reply in replies.items()}
    found = {}
    for site, length in lengths.items():
        usual = statistics.median(other for name, other in lengths.items() if name != site)
        if length > ratio * usual > 0:
            found[site] = (
                f"{site} sent a step {length / usual:,.0f} times as long as the others', "
                f"at most {ratio:,.0f} times is allowed; refused"
            )
    return found


def _length(reply: Sums) -> float:
    length = float(reply.step.double().norm())
    return length / reply.scale if reply.scale > 0 else length


def _check_counts(came: Tensor, most: Tensor, what: str, site: str) -> None:
    if bool((came < 0).any()):
        raise RefusedError(f"{site} sent a negative count of {what}; refused")
    if bool((came > most).any()):
        place = int((came > most).nonzero()[0])
        raise RefusedError(
            f"{site} counts {int(came[place]):,} {what} where its census has "
            f"{int(most[place]):,}; refused"
        )
