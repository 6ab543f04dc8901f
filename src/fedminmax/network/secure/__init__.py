"""Masked sums: what a site sends looks random, and only the total over many sites can be read."""
