"""Differential privacy: clipped rows, noise, and what the two promise."""
