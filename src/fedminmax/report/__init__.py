"""The report of finished runs: one HTML page, its figures and tables."""
