"""Train as one process of those that WORLD_SIZE counts, on its share of rows made by hand.

    python one_rank.py MODEL SCORED OUTPUT SETTINGS

SCORED is a pickle of a step's trajectories in order, SETTINGS a list of GRPOConfig's as JSON: one
run each. Leaves `RANK.pt` in OUTPUT: weights and logs of every run.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from repl_rl.credit.advantages import load_credit
from repl_rl.models.precision import Precision
from repl_rl.records import Scored
from repl_rl.update.trainer import make_trainer
from trainer_kit import Catch, byte_tokenizer, config_of


def main(model: str, scored: str, output: str, settings: str) -> None:
    everyone: list[Scored] = pickle.loads(Path(scored).read_bytes())
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    size = len(everyone) // num_ranks
    num_groups = len({item.trajectory.group_index for item in everyone})
    own = everyone[rank * size : (rank + 1) * size]

    def collect(numbers: Sequence[int], _version: int) -> list[Scored]:
        assert [n % num_groups for n in numbers] == [x.trajectory.group_index for x in own]
        return own

    ended = []
    for number, grpo in enumerate(json.loads(settings)):
        catch, config = Catch(), config_of(1, **grpo)
        trainer = make_trainer(
            model=Qwen3ForCausalLM.from_pretrained(model),
            tokenizer=byte_tokenizer(),
            collect=collect,
            settings=config,
            credit=load_credit(config.grpo),
            precision=Precision(),
            folder=Path(output) / str(number),
            callbacks=[catch],
        )
        trainer.train()
        weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
        ended.append((weights, catch.logs))
    torch.save(ended, Path(output) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
