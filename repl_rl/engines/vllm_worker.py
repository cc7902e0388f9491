"""`PolicyLoader` by its former name, which commands that start `vllm serve` may give."""

from repl_rl.engines.vllm.worker import PolicyLoader as PolicyLoader
