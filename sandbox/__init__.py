"""Runs untrusted Python, one stateful interpreter per process. Knows no models, tokens, rewards."""

__repl_rl__ = "0.1.0"
"""Compared with `repl_rl.__version__` at start: others may also call themselves `sandbox`."""
