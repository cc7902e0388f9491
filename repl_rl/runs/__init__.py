"""Files that a run leaves on disk, and their statistics."""
