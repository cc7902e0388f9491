"""`TinkerEngine` by its former name; see `repl_rl.integrations.tinker`."""

from repl_rl.integrations.tinker import TinkerEngine as TinkerEngine
