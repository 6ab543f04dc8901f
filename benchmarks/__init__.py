"""How fast a round is, measured against what plain PyTorch allows."""
