"""Real federations: states, and hospitals, as sites."""
