"""`python -m repl_rl.lm_eval`; see `repl_rl.integrations.lm_eval`."""
