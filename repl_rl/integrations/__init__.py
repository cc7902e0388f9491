"""Our loop, kernels, masks and line rewards in other people's trainers and harnesses."""
