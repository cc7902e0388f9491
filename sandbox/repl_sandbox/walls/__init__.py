"""What a kernel cannot reach, and how Linux is told."""
