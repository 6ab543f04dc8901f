"""The server's half of a job, under the name that jobs and kits on disk know it by."""

from fedminmax.federation.flare.server import FlareServer

__all__ = ["FlareServer"]
