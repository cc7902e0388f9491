"""`derive_seed` by the former name of its module, `repl_rl.base.concurrency`."""

from repl_rl.former import moved

__getattr__ = moved("repl_rl.seeds", to="repl_rl.base.concurrency")
