"""Who is asked in a round of a run over a network, and how long each site may take.

A site that was too late is asked again some rounds later, and after twice as many if it is too
late again, so that a site that is gone for good costs little, and one that is back misses at most
as many rounds again as it was away. How long a site may take depends on its own times so far.
"""

from fedminmax.federation.network_plan import SiteRules

# A site is never given up sooner, unless the plan says so: machines have bad moments.
MIN_SECONDS = 30.0
# It may take this many times its longest time so far.
TIMES_ITS_LONGEST = 10.0


class Attendance:
    """How often and in which round each site was too late, and how long it took otherwise."""

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

    def missed_before(self, site: str) -> bool:
        """Tell whether the site was too late the last time it was asked."""
        return site in self._misses

    def seconds_for(self, site: str) -> float:
        """Return how long this site may take for an answer."""
        limit = self._site_rules.give_up_after
        if site in self._longest:
            limit = min(limit, TIMES_ITS_LONGEST * self._longest[site])
        return min(self._site_rules.seconds_per_answer, max(MIN_SECONDS, limit))

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
        left_out: int = self._site_rules.rounds_left_out * 2 ** (self._misses[site] - 1)
        return self._missed_in[site] + left_out + 1
