"""The command line: words in, files and tables out."""
