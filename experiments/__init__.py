"""The experiments of the paper: exact commands, results, and what explains them."""
