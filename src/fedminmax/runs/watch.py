"""Watch a run folder, whatever kind of run it has: on tables here, or over a network."""

from collections.abc import Generator
from pathlib import Path

from fedminmax.core.errors import EXTRAS, InputError, install_command
from fedminmax.runs.federation_record import PLACE
from fedminmax.runs.layout import RECORD_FILE, RESULTS_FILE
from fedminmax.runs.live import LiveRun, Stage
from fedminmax.runs.watch_tables import watch_tables


def watch_folder(folder: Path, wait: float) -> Generator[LiveRun]:
    """Yield how the run in this folder is, at each call; the folder need not exist yet.

    ``wait`` is how long to wait for the server of a run over a network, in seconds.
    """
    tables = watch_tables(folder)
    yield LiveRun(str(folder), Stage.WAITING, "Looking for the run.")
    while True:
        if not is_over_network(folder):
            yield next(tables)
            continue
        try:
            # Only here: the engine takes a second to import.
            from fedminmax.runs.watch_network import watch_federation_folder

            yield from watch_federation_folder(folder, wait)
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package not in EXTRAS:
                raise
            yield LiveRun(
                str(folder), Stage.WAITING, f"{package} is needed: {install_command(package)}."
            )
        except (InputError, OSError) as error:
            yield LiveRun(str(folder), Stage.WAITING, f"{error}.")


def is_over_network(folder: Path) -> bool:
    """Whether the folder's run is one over a network that has no results yet."""
    return (folder / PLACE / RECORD_FILE).is_file() and not (folder / RESULTS_FILE).is_file()
