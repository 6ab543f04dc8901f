"""Real schools as sites: maths scores of pupils."""
