"""The words of `fedminmax compare adult`."""

import argparse
from typing import Any

from fedminmax.cli.compare_shared_options import Defaults, add_shared

# How rates, epochs and rounds were chosen is in experiments/adult/README.md.
FULL = Defaults(
    rounds=1500,
    local_rounds=100,
    methods="fedminmax-fast,fedminmax,fedavg,afl,qfedavg:q=0.2,qfedavg:q=5,fedminmax@centralized",
    settings=("ESG", "SSG", "PSG"),
    learning_rate=1.0,
    epochs=1,
    batch_size=400,
)
QUICK = Defaults(rounds=300, local_rounds=30)


def add_to(data_sets: "argparse._SubParsersAction[Any]") -> None:
    """Add the data set to the command line."""
    parser = data_sets.add_parser(
        "adult",
        help="census incomes, ten groups by sex and race, a logistic model",
        description="Compare methods on Adult (Census Income), which comes with the package: all "
        "32,561 training rows, a logistic model, groups by sex and race. Interrupt it at any time; "
        "the same command goes on.",
        epilog="example: fedminmax compare adult --quick",
    )
    add_shared(parser, "adult", FULL)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK.rounds} rounds, {QUICK.local_rounds} with local epochs; a later call without "
        "it goes on from there",
    )
    parser.add_argument(
        "--loss",
        choices=("brier", "cross-entropy"),
        default="brier",
        help="what training minimises; tables show Brier risk (brier)",
    )
    parser.add_argument(
        "--include-protected", action="store_true", help="let the model see sex and race"
    )
    # None tells what the user left open, which --quick decides.
    parser.set_defaults(run=_run, rounds=None, local_rounds=None)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.compare import compare
    from fedminmax.data.adult import load_adult
    from fedminmax.studies.adult import AdultConfig, AdultStudy

    config = AdultConfig(
        holders=options.holders,
        include_protected=options.include_protected,
        loss=options.loss,
        seed=options.seed,
        device=options.device,
    )
    data = load_adult(include_protected=config.include_protected)
    usual = QUICK if options.quick else FULL
    chosen = {
        "rows": len(data.train),
        "rounds": options.rounds or usual.rounds,
        "local_rounds": options.local_rounds or usual.local_rounds,
    }
    decided = argparse.Namespace(**(vars(options) | chosen))
    compare("adult", AdultStudy(config, data), config, decided, network=False)
