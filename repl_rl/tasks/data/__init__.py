"""Problems of one's own: rows of a file, of a data set on the hub, or of a generator."""
