"""A site's side of a run over a network: its rows, its policy, its replies."""
