"""Where holders live, and the only round loop."""
