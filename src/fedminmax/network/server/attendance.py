"""Which sites are asked in a round, and how long each may take: by how it answered before."""

from collections.abc import Sequence

from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.network.wire.transport import MIN_SECONDS, Transport, present_sites

# A site may take this many times its longest time so far.
SLOWEST_FACTOR = 10.0


class Attendance:
    """How often and in which round each site was too late, and how long it took otherwise.

    How long a site may take depends on its own times so far. A site that was too late is asked
    again some rounds later, and after twice as many if it is late again, so that a site that is
    gone for good costs little, and a returning one misses at most as many rounds again as it was
    absent.
    """

    def __init__(self, site_rules: SiteRules) -> None:
        self._site_rules = site_rules
        self._longest: dict[str, float] = {}
        self._misses: dict[str, int] = {}
        self._missed_in: dict[str, int] = {}

    def away(self, number: int) -> dict[str, str]:
        """Return the sites that are not asked in this round, each with the reason."""
        return {
            site: f"{site} was too late and is asked again in round {self._next_round(site)}"
            for site in self._misses
            if self._next_round(site) > number
        }

    def find_gone(self, transport: Transport, sites: Sequence[str], number: int) -> list[str]:
        """Return which of these were too late before and are not connected now."""
        doubtful = [site for site in sites if site in self._misses]
        if not doubtful:
            return []
        there = present_sites(transport, doubtful)
        gone = [site for site in doubtful if site not in there]
        for site in gone:
            self.missed(site, number)
        return gone

    def seconds_for(self, site: str) -> float:
        """Return how long this site may take for an answer."""
        limit = self._site_rules.round_timeout
        if site in self._longest:
            limit = min(limit, SLOWEST_FACTOR * self._longest[site])
        return min(self._site_rules.reply_timeout, max(MIN_SECONDS, limit))

    def came(self, site: str, seconds: float) -> None:
        """Note that a site answered after so long."""
        self._longest[site] = max(seconds, self._longest.get(site, 0.0))
        self._misses.pop(site, None)
        self._missed_in.pop(site, None)

    def missed(self, site: str, number: int) -> None:
        """Note that a site was too late in this round; several times in one round count once."""
        if self._missed_in.get(site) != number:
            self._misses[site] = self._misses.get(site, 0) + 1
            self._missed_in[site] = number

    def _next_round(self, site: str) -> int:
        left_out: int = self._site_rules.skip_rounds * 2 ** (self._misses[site] - 1)
        return self._missed_in[site] + left_out + 1
