"""The configuration of a run on tables: sections of `fedminmax.toml`, checks, and overrides."""
