"""Real schools as holders: maths scores of pupils."""
