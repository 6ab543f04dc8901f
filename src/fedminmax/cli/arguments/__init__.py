"""The options of all commands; light, so that help comes at once."""
