"""The same round of FedMinMax in other libraries, each run in an environment of its own."""
