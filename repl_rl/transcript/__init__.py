"""What a line is: how it looks, which tokens it has, what became of it."""
