"""NVIDIA FLARE as the transport; nothing outside this package depends on it."""
