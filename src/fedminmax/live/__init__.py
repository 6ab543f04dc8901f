"""How a run is while it goes on: on tables here, or over a network."""
