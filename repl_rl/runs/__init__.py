"""What a run leaves on disk, and statistics of it."""
