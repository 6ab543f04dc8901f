"""A small federation's kits, and a site that looks at what would leave it."""

from pathlib import Path

from fedminmax.cli.main import main
from tests.network.network_problem import write_tables

DESCRIBED = """
sites = ["north", "south"]
[server]
port = 18444
[people]
"ann@lab.org" = "coordinator"
"bob@lab.org" = "member"
"""
SETTINGS = Path("kits/sites/north/local/fedminmax.json")


def create(folder: Path, text: str = DESCRIBED) -> int:
    """Make kits beside their description."""
    file = folder / "federation.toml"
    file.write_text(text)
    return main(["federation", "create", str(file), "--out", str(folder / "kits")])


def check(folder: Path, *more: str, config: Path | None = None) -> int:
    """Let the north look at its table, as a configuration (or that of three hospitals) says."""
    config = config or write_tables(folder)
    words = ["site", "check", "--kit", str(folder / "kits/sites/north")]
    words += ["--data", str(folder / "north.csv"), "--config", str(config), *more]
    return main(words)
