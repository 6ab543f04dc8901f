"""One paper per file: each method is a frozen record of pure functions, state in, state out."""
