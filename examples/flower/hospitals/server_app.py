"""The server: runs fedminmax.toml, and writes the run folder."""

from pathlib import Path

from fedminmax.flower import server_app

app = server_app(Path(__file__).with_name("fedminmax.toml"))
