"""What a run found: the records of its folder, and the words and numbers that every page shows."""
