"""Flower as the transport: a ServerApp and a ClientApp that ask and answer our own questions."""

from fedminmax.flower.client import Rows, client_app
from fedminmax.flower.server import server_app

__all__ = ["Rows", "client_app", "server_app"]
