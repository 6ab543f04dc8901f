"""Tables of sites' rows: from files and a schema to encoded examples."""
