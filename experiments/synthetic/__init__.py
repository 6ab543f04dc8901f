"""The synthetic experiment, Table 1 of the paper."""
