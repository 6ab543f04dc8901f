"""Where a command may write: nothing of the user's is overwritten, and a file is no folder."""

from pathlib import Path

from fedminmax.core.errors import InputError

FORCE = "replace the file if it is there"


def check_new_file(path: Path, option: str, *, force: bool) -> None:
    """Refuse a file that is there unless it may be replaced, or that could not be written."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file with {option}")
    if path.exists() and not force:
        raise InputError(
            f"{path} is already there; give another {option}, or --force to replace it"
        )
    check_parents(path, option)


def check_parents(path: Path, option: str) -> None:
    """Refuse a path that leads through a file."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(
                f"{parent} is a file, no folder for {path.name}; give another {option}"
            )
