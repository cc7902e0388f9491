"""Adapter for EleutherAI's lm-evaluation-harness; importing `model` registers `repl-rl` there.

In here `import lm_eval` is the harness: imports are absolute.
"""
