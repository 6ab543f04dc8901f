"""Runs on tables, in one process or over a network: plan, train, measure, and their folders."""
