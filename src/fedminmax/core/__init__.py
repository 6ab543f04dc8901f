"""What all rooms stand on: mathematics on tensors, errors, files; no network, no method."""
