"""Options that say how a run over a network deals with sites that do not answer as they should."""

import argparse
from typing import TYPE_CHECKING

from fedminmax.cli.option_types import duration, positive, positive_int, whole_number

if TYPE_CHECKING:
    from fedminmax.federation.network_plan import SiteRules


def add_site_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    add = parser.add_argument_group("sites that do not answer").add_argument
    add(
        "--minimum-sites",
        type=positive_int,
        default=2,
        metavar="N",
        help="a round with fewer good replies waits (2)",
    )
    add(
        "--answer-within",
        type=duration,
        default=600.0,
        metavar="TIME",
        help="at most; a site that takes longer is left out for some rounds (10m)",
    )
    add(
        "--rounds-left-out",
        type=whole_number,
        default=10,
        metavar="N",
        help="after so many it is asked again, then after twice as many, ... (10)",
    )
    add(
        "--give-up-after",
        type=duration,
        default=3600.0,
        metavar="TIME",
        help="stop a round that waits for so long; the run can be resumed (1h)",
    )
    add(
        "--largest-step",
        type=positive,
        default=1000.0,
        metavar="X",
        help="refuse a network's step so many times as long as the others' (1000)",
    )
    add(
        "--max-rows",
        type=positive_int,
        default=10**9,
        metavar="N",
        help="refuse a site that tells of more training rows (1000000000)",
    )
    add(
        "--minimum-group",
        type=positive_int,
        default=5,
        metavar="N",
        help="stop before the first round if a group has fewer training rows in all (5)",
    )


def site_rules_of(options: argparse.Namespace) -> "SiteRules":
    """Return what the options say."""
    from fedminmax.federation.network_plan import SiteRules

    return SiteRules(
        options.answer_within,
        options.minimum_sites,
        options.rounds_left_out,
        options.give_up_after,
        options.largest_step,
        options.max_rows,
        options.minimum_group,
    )
