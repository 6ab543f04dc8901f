"""What runs between machines: what travels, sites, the server, secure aggregation, the engine."""
