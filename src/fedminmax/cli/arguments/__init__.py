"""The options of all commands; imports are light, so that help is instant."""
