"""What a run leaves on disk, and what it amounts to."""
