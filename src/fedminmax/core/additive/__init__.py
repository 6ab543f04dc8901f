"""Additive models of coded columns: the module, its sums over records, and its smoothing."""
