"""Why does FedAvg not settle where sites have few labels? Other pixels, rates, local epochs.

Prints, after each round, the test risk of the worst group, its name, and the mean over groups.

    python -m experiments.fashion_mnist.fedavg_swings --pixels plain
    python -m experiments.fashion_mnist.fedavg_swings --learning-rate 0.01

Without options it is the run in PSG of the table on 6,000 rows.
"""

import argparse
from dataclasses import replace

from experiments.paper.fashion import fashion_study
from experiments.paper.fashion_mnist import (
    GROUP_NAMES,
    PIXEL_DEVIATION,
    PIXEL_MEAN,
    FashionMnist,
    fashion_mnist,
)
from fedminmax import FedAvg, Iterate, train
from fedminmax.core.examples import Examples
from fedminmax.studies.study import RunPlan, StudyConfig


def with_plain_pixels(rows: Examples) -> Examples:
    """Return images with pixels from 0 to 1, as they come."""
    return replace(rows, x=rows.x * PIXEL_DEVIATION + PIXEL_MEAN)


def main() -> None:
    """Run FedAvg as asked and print each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pixels", choices=("standardised", "plain"), default="standardised")
    parser.add_argument("--setting", choices=("ESG", "SSG", "PSG"), default="PSG")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    data = fashion_mnist(None)
    if options.pixels == "plain":
        data = FashionMnist(with_plain_pixels(data.train), with_plain_pixels(data.test))
    config = StudyConfig(options.rows, 40, model="cnn", widths=(16, 32))
    study = fashion_study(config, data)
    method = FedAvg(options.learning_rate, options.epochs, batch_size=100)
    federation = study.federation(
        RunPlan(options.setting, method, 0, rounds=options.rounds, cost=0)
    )
    for done in train(federation, method, rounds=options.rounds, seed=study.fold_seed(0)):
        risks = study.scores(federation.model(done.parameters(Iterate.LAST))).risks
        worst = max(range(len(risks)), key=lambda group: risks[group])
        mean = sum(risks) / len(risks)
        print(f"{done.number:4} {risks[worst]:.3f} {GROUP_NAMES[worst]:12} {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
