"""Your own problems: rows of a file, of a data set on the hub, or of a generator."""
