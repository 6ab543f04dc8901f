"""The command line: options in, files and tables out."""
