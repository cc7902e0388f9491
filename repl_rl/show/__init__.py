"""Trajectories and runs in a terminal."""
