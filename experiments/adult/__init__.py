"""Adult: the table of all methods, and how the data came into the package."""
