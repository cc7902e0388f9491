"""A task for TRL's trainers: `ReplSpec`. Nothing else of repl-rl imports this."""

from repl_rl.trl.spec import ReplSpec as ReplSpec
