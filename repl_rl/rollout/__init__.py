"""One trajectory, and many: the line loop, kernels, verdicts."""
