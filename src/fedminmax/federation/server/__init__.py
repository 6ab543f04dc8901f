"""The server's side of a run over a network, whatever carries the messages."""
