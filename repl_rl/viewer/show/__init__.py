"""Trajectories and runs in a terminal, and as pictures."""
