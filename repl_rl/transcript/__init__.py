"""Lines of a transcript: their look, their tokens and their outcomes."""
