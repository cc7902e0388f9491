"""Rewards of lines and answers, and the advantage of each sampled token."""
