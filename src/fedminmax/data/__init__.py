"""Data sets, and how their rows come to lie with holders."""
