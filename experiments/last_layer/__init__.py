"""A certified last layer on frozen features."""
