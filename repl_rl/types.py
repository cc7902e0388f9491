"""Records by the former name of their module, `repl_rl.records`."""

from repl_rl.former import moved

__getattr__ = moved("repl_rl.types", to="repl_rl.records")
