"""A site: answers the server's questions from its own records."""

from fedminmax.flower import client_app

from .task import load_data

app = client_app(load_data)
