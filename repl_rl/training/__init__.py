"""Path from a config to a trained policy: the update, the starter, evaluations, the audit."""
