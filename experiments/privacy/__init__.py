"""Worst and mean risk on Adult against the privacy guarantee."""
