"""Where a command may write: nothing of the user's is overwritten, and a file is no folder."""

from pathlib import Path

from fedminmax.core.errors import InputError


def check_new_file(path: Path, option: str) -> None:
    """Refuse a file that is there, or that could not be."""
    if path.exists():
        raise InputError(f"{path} is already there; remove it, or give another {option}")
    check_parents(path, option)


def check_parents(path: Path, option: str) -> None:
    """Refuse a path that leads through a file."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(
                f"{parent} is a file, no folder for {path.name}; give another {option}"
            )
