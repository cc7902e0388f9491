"""`ReplLM` by its former name; importing it registers the model `repl-rl` with the harness."""

from repl_rl.integrations.lm_eval.model import ReplLM as ReplLM
