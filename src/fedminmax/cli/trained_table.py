"""What `fedminmax train` prints at its end: test risk by group, ours and the baseline's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedminmax.cli.tables import plain_table, wide_console
from fedminmax.report.table_metrics import RISK, estimate_words


def print_trained(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Print the table of a finished run and its baseline, and where everything is."""
    console = wide_console()
    tests = [result["test"] for result in results]
    if tests[0]["rows"]:
        metrics = [test["metrics"][RISK] for test in tests]
        names = [result["method"]["name"] for result in results]
        confidence = f"{100 * tests[0]['confidence']:g} %"
        title = f"Test risk by group ({confidence} intervals)"
        lines = [
            [
                group,
                f"{metrics[0]['by_group'][number]['rows']:,}",
                *(estimate_words(metric["by_group"][number]) for metric in metrics),
            ]
            for number, group in enumerate(results[0]["groups"])
        ]
        overall = ["all", f"{tests[0]['rows']:,}"]
        overall += [estimate_words(metric["overall"]) for metric in metrics]
        console.print(plain_table(title, ["group", "rows", *names], [*lines, overall]))
        for name, metric in zip(names, metrics, strict=True):
            words = f"Worst off with {name}: {metric['worst_group']}"
            console.print(words, markup=False, highlight=False)
    for what, name in (
        ("Results", "results.json"),
        ("Card", "model_card.md"),
        ("Model", "model.safetensors"),
    ):
        console.print(f"{what}: {folder / name}", markup=False, highlight=False)
    console.print(f"Next: fedminmax evaluate {folder}", markup=False, highlight=False)
