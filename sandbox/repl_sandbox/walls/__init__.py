"""Walls around a kernel: what it cannot reach, and how Linux is told."""
