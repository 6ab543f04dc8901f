"""Table 2 and the appendix of the paper on FashionMNIST."""
