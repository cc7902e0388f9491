"""Trees of trajectories: groups whose rollouts leave one another, as a credit."""
