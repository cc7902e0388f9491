"""Reinforcement learning for models that think in a Python REPL, one line at a time."""

__version__ = "0.1.0"
