"""FashionMNIST for a command: found, or downloaded with a bar."""

from pathlib import Path

from fedminmax.cli.progress import display
from fedminmax.core.errors import InputError
from fedminmax.data.fashion_mnist import (
    FILES,
    FashionMnist,
    cache_folder,
    download_fashion_mnist,
    find_fashion_mnist,
    folders_to_search,
    load_fashion_mnist,
    where_to_get_it,
)


def fashion_mnist(data_dir: Path | None) -> FashionMnist:
    """Load the images from where they are; if they are nowhere, download them first."""
    found = find_fashion_mnist(folders_to_search(data_dir))
    if found is None:
        found = data_dir or cache_folder()
        _download(found, data_dir)
    return load_fashion_mnist(found)


def _download(folder: Path, data_dir: Path | None) -> None:
    try:
        with display("download FashionMNIST", len(FILES)) as bars:
            names: list[str] = []
            for step in download_fashion_mnist(folder):
                if step.name not in names:
                    names.append(step.name)
                    bars.start_run(step.name, step.total or step.done)
                bars.show_round(step.done)
                bars.show_work(len(names) - 1 + step.done / (step.total or step.done))
    except InputError as error:
        raise InputError(
            f"FashionMNIST is nowhere on this machine and {error}, or {where_to_get_it(data_dir)}"
        ) from error
