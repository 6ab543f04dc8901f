"""NVIDIA FLARE as the carrier of messages; nothing outside this package knows it."""
