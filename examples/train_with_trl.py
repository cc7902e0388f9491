"""Train with TRL and credit on the line: `python examples/train_with_trl.py MODEL [STEPS]`.

`repl-rl show runs/trl` and `repl-rl replay runs/trl` read what it leaves. With `GRPOTrainer` in
place of `spec.trainer_class` the same script has credit for outcomes alone.
"""

import sys

import torch
from trl import GRPOConfig

from repl_rl.trl import ReplSpec


def main(model: str, steps: int = 20) -> None:
    spec = ReplSpec("sympy-proofs", output="runs/trl")
    trainer = spec.trainer_class(
        model=model,
        args=GRPOConfig(
            output_dir="runs/trl/checkpoints",
            max_steps=steps,
            num_generations=8,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=4,
            max_completion_length=256,
            learning_rate=2e-5,
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
        ),
        train_dataset=spec.train_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    trainer.save_model("runs/trl/checkpoints/final")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
