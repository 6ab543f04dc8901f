"""The same round of FedMinMax in other libraries, run in a separate environment."""
