"""Linear, spline and network models on tables of many shapes."""
