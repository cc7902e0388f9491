"""A task for TRL's trainers, `ReplSpec`, by the name that programs import."""

from repl_rl.integrations.trl import ReplSpec as ReplSpec
