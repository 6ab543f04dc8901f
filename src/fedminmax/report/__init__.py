"""Results by group: records, tables, files."""
