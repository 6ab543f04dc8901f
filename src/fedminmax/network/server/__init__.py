"""The server's side of a run over a network, independent of the transport."""
