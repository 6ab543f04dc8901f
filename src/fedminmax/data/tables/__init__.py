"""Tables of holders' rows: from files and a schema to encoded examples."""
