"""Runs untrusted Python, one stateful interpreter per process. Knows no models, tokens, rewards."""
