"""Train the paper's network by FedAvg, freeze it, and train its last layer for the worst group.

    python -m experiments.last_layer.run --out experiments/last_layer/results.json

FashionMNIST; groups are the ten labels. Half of the training images train the network, the other
half the last layer: on images that the network has learnt by heart every last layer is right
(Kirichenko, Izmailov, Wilson: Last layer re-training is sufficient for robustness to spurious
correlations, ICLR 2023). The 1,568 features of a network are too many for second derivatives with
ten classes, so sites send sums of x x' first, and train on the features' principal components.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.paper.fashion_mnist import GROUP_NAMES, choose_rows, fashion_mnist
from fedminmax import FedAvg, FedMinMaxFast, Simulation, fit
from fedminmax.core.examples import Examples
from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.losses import brier_loss, cross_entropy_loss
from fedminmax.methods import FedAvgFast
from fedminmax.models import cnn
from fedminmax.training.train import Round

SITES, SEED, CHUNK = 40, 0, 2_000
Rows = tuple[Tensor, Tensor, Tensor]


def features_of(encoder: nn.Module, images: Tensor) -> Tensor:
    """Return the frozen network's features of each image, in float64."""
    with torch.no_grad():
        return torch.cat([encoder(chunk) for chunk in torch.split(images, CHUNK)]).double()


def principal_components(sites: list[Tensor], columns: int) -> tuple[Tensor, Tensor]:
    """Return the mean, and the first components [f, columns] scaled to deviation 1, from sums."""
    rows = sum(len(own) for own in sites)
    mean = torch.stack([own.sum(dim=0) for own in sites]).sum(dim=0) / rows
    squares = torch.stack([own.T @ own for own in sites]).sum(dim=0) / rows
    values, vectors = torch.linalg.eigh(squares - torch.outer(mean, mean))
    kept = vectors[:, -columns:].flip(1)
    return mean, kept / values[-columns:].flip(0).sqrt()


def risks_by_group(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    """Return the Brier score (sum over classes) of each label's images."""
    with torch.no_grad():
        losses = torch.cat(
            [
                brier_loss(model(part), labels)
                for part, labels in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True)
            ]
        )
    return [float(losses[y == label].mean()) for label in range(len(GROUP_NAMES))]


def line(name: str, done: Round[Any], seconds: float, risks: list[float]) -> dict[str, Any]:
    """Return what is told of a model."""
    proof = done.certificate
    worst = max(range(len(risks)), key=risks.__getitem__)
    return {
        "model": name,
        "rounds": done.number,
        "seconds": round(seconds, 1),
        "worst": round(risks[worst], 4),
        "worst_group": GROUP_NAMES[worst],
        "mean": round(sum(risks) / len(risks), 4),
        "by_group": dict(zip(GROUP_NAMES, (round(risk, 4) for risk in risks), strict=True)),
        "certificate": None
        if proof is None
        else {"upper": round(proof.upper, 6), "lower": round(proof.lower, 6)},
    }


def main() -> None:
    """Train the network, then last layers on its features, and measure all on the test images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000, help="training images")
    parser.add_argument("--rounds", type=int, default=20, help="of FedAvg, each of --epochs epochs")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--columns", type=int, default=128, help="principal components")
    parser.add_argument("--ridge", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = fashion_mnist(None)
    rows = choose_rows(data.train, options.rows, SEED)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))
    first, second = (rows.rows(part) for part in torch.tensor_split(order, 2))
    torch.manual_seed(SEED)
    lines, start = [], time.perf_counter()
    network = Simulation(cnn(), brier_loss, _sites(first), group_names=GROUP_NAMES)
    done = fit(
        network, FedAvg(0.1, options.epochs, batch_size=100), rounds=options.rounds, seed=SEED
    )
    trained = done.model()
    seconds = time.perf_counter() - start
    whole = risks_by_group(trained, data.test.x, data.test.y)
    lines.append(line("network, FedAvg", done, seconds, whole))

    layers = list(trained.children())
    encoder = nn.Sequential(*layers[:-1]).eval()
    embedded = [(features_of(encoder, x), y, group) for x, y, group in _sites(second)]
    mean, components = principal_components([x for x, _, _ in embedded], options.columns)
    sites = [((x - mean) @ components, y, group) for x, y, group in embedded]
    unseen = (features_of(encoder, data.test.x) - mean) @ components
    methods: dict[str, Any] = {
        "mean": FedAvgFast(),
        "minimax": FedMinMaxFast(),
        "tolerance 0.005": FedMinMaxFast(tolerance=0.005),
    }
    for name, method in methods.items():
        head = nn.Linear(options.columns, len(GROUP_NAMES)).double()
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.zero_()
        start = time.perf_counter()
        federation = Simulation(
            head, cross_entropy_loss, sites, ridge=options.ridge, group_names=GROUP_NAMES
        )
        last: Round[Any] = fit(federation, method, rounds=200, seed=SEED)
        seconds = time.perf_counter() - start
        risks = risks_by_group(last.model(), unseen, data.test.y)
        lines.append(line(f"last layer, {name}", last, seconds, risks))
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    options.out.write_text(
        json.dumps({"settings": settings, "models": lines}, indent=1) + "\n", encoding="utf-8"
    )


def _sites(rows: Examples) -> list[Rows]:
    parts = partition_by_setting(Setting.ESG, rows.group, SITES, SEED)
    return [(rows.x[part], rows.y[part], rows.group[part]) for part in parts]


if __name__ == "__main__":
    main()
