"""Worst and mean risk on Adult against the promise of privacy."""
