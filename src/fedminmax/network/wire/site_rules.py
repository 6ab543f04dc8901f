"""What a server does about sites that do not answer, or answer wrongly.

The command line reads its options' defaults here, so that nothing else is imported.
"""

from dataclasses import KW_ONLY, dataclass

# With fewer than two sites the results are those of one site alone.
MINIMUM_SITES = 2


@dataclass(frozen=True)
class SiteRules:
    """How the server handles sites that do not reply, or send invalid replies.

    A site that takes longer than ``reply_timeout`` seconds is asked again after ``skip_rounds``
    rounds. With fewer than ``minimum_sites`` valid replies the server retries until
    ``round_timeout`` seconds have passed. A network's step that is ``max_step_ratio`` times as long
    as the others' is refused, and so is a site that reports more than ``max_rows`` training rows. A
    group with fewer training rows in total than ``abort_below`` stops the run before its first
    round: it would dominate minimax.
    """

    reply_timeout: float = 600.0
    _: KW_ONLY
    minimum_sites: int = MINIMUM_SITES
    skip_rounds: int = 10
    round_timeout: float = 3600.0
    max_step_ratio: float = 1000.0
    max_rows: int = 10**9
    abort_below: int = 5


DEFAULT_RULES = SiteRules()
