"""Train with TRL and credit on the line: `python examples/train_with_trl.py MODEL OUTPUT [STEPS]`.

`repl-rl show OUTPUT` and `repl-rl replay OUTPUT` read what it leaves; each training has an output
of its own. With `GRPOTrainer` for `spec.trainer_class` it has credit for outcomes alone.
"""

import sys

import torch
from trl import GRPOConfig

from repl_rl.trl import ReplSpec


def main(model: str, output: str, steps: int = 20) -> None:
    args = GRPOConfig(
        output_dir=f"{output}/checkpoints",
        max_steps=steps,
        per_device_train_batch_size=16,  # two problems of eight siblings
        gradient_accumulation_steps=4,
        max_completion_length=256,
        learning_rate=2e-5,
        use_cpu=not torch.cuda.is_available(),
    )
    with ReplSpec("sympy-proofs", output=output) as spec:
        trainer = spec.trainer_class(
            model, spec.reward_funcs, args, spec.train_dataset, rollout_func=spec.rollout_func
        )
        trainer.train()
        trainer.save_model(f"{output}/checkpoints/final")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
