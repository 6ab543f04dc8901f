"""Shared by all packages: mathematics on tensors, errors and files; no network, no methods."""
