"""A trained model as a file, for this package and for other programs."""
