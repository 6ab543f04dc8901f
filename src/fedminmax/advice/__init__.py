"""Advice before any training: what row counts imply, and what a run costs."""
