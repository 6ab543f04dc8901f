"""Options that the paper's experiments share."""

import argparse
from pathlib import Path

from fedminmax.cli.option_types import duration, not_negative, positive, positive_int, whole_number


def add_folder_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add where results go and how much of the work one call does."""
    add = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help=f"results and checkpoints ({folder})")
    add(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop at a checkpoint after 90s, 30m, 2h, ...; the same command goes on",
    )
    add("--status", action="store_true", help="show what is done and what is left, and exit")
    add("--json", action="store_true", help="print machine-readable results alone on stdout")


def add_training_options(
    parser: argparse.ArgumentParser,
    *,
    holders: str = "40",
    epochs: str = "15",
    batch_size: str = "100",
) -> None:
    """Add the hyperparameters of the paper's Table 3; the words say what stands for None."""
    add = parser.add_argument
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add("--holders", type=positive_int, metavar="N", help=f"number of holders ({holders})")
    add(
        "--adversary-rate", type=positive, default=0.1, metavar="X", help="eta_mu, eta_lambda (0.1)"
    )
    add("--epsilon", type=not_negative, default=0.0, metavar="X", help="FedMinMax's floor (0)")
    add("--epochs", type=positive_int, metavar="N", help=f"local epochs E ({epochs})")
    add("--batch-size", type=positive_int, metavar="N", help=f"local batch ({batch_size})")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
