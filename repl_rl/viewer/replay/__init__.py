"""A stored trajectory seen again: stepped through, run again, scored again, shown, continued.

    trajectories/*.jsonl -> StoredTrajectory -> Scored -> live kernel | notebook | page | rewards

Loads no torch: a policy that continues a trajectory comes in from outside.
"""
