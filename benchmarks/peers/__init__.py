"""The same round of FedMinMax in other federated learning libraries, each in its own environment."""
