"""Pure mathematics on tensors: no files, no network, no method of any paper."""
