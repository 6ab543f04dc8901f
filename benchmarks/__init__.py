"""The speed of a round, measured against plain PyTorch."""
