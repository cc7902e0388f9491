"""Hold the memory estimate to measured peaks: `python benchmarks/memory.py [--size 0.1B] [--cuda]`.

For each case a process of its own loads a Qwen3 of random weights, takes two GRPO steps on made-up
trajectories and prints the peak beside what `repl-rl train --dry-run` expects. A peak is what came
on top of a tiny model's updates: of the process on a CPU, of torch's allocator on a GPU. Exit code
1 if an estimate is off by more than a fifth.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.base import engine_kind
from repl_rl.engines.memory import measure
from repl_rl.models.loading import load_weights, read_files, to_train
from repl_rl.models.precision import Precision, precision
from repl_rl.records import (
    Line,
    LineOutcome,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
)
from repl_rl.update.trainer import make_trainer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from tiny_model import save_tiny_model

SIZES: dict[str, dict[str, Any]] = {
    "0.1B": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 14,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 98_304,
    },
    "0.6B": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    },
}
"""The second has the shape of Qwen3-0.6B."""
CASES: dict[str, tuple[str, ...]] = {
    "float32": (),
    "accumulated": ("grpo.problems_per_step=2",),
    "checkpointing": ("grpo.gradient_checkpointing=true",),
    "a reference": ("grpo.kl_beta=0.01",),
    "bfloat16": ("grpo.dtype=bfloat16",),
    "mixed": ("grpo.dtype=mixed",),
    "lora": ("lora.rank=16",),
    "lora, bfloat16": ("lora.rank=16", "grpo.dtype=bfloat16"),
    "8-bit AdamW": ("trl.optim=adamw_bnb_8bit",),
    "Adafactor": ("trl.optim=adafactor",),
}
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16)}
"""Blocks go back to the system at once. By default glibc keeps those of less than 32 MiB in a heap
whose holes count as memory of the process: up to 290 MiB here."""
TINY = "{model}/tiny"
TOLERANCE = 0.2
MIB = 1 << 20


def main() -> None:
    args = parsed(sys.argv[1:])
    if args.case:
        print(json.dumps(peak(args.case)))
        return
    print(f"{args.size}, {args.rows} x {args.tokens} tokens, MiB")
    print(f"{'':<17} {'estimate':>9} {'measured':>9} {'off':>6}")
    worst = 0.0
    for name, found in peaks(args):
        if isinstance(found, str):
            print(f"{name:<17} {found}", flush=True)
            worst = 1.0
            continue
        estimate, measured = found
        off = estimate / measured - 1
        worst = max(worst, abs(off))
        print(f"{name:<17} {estimate:>9,.0f} {measured:>9,.0f} {off:>6.0%}", flush=True)
    sys.exit(worst > TOLERANCE)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="0.1B")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rows", type=int, default=2, help="Trajectories of a micro-batch.")
    parser.add_argument("--tokens", type=int, default=256, help="Tokens of each.")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def peaks(args: argparse.Namespace) -> Iterator[tuple[str, tuple[float, float] | str]]:
    """(case, its estimate and its measured peak in MiB, or why there is none) for each case."""
    common = [
        f"sampling.device={'cuda' if args.cuda else 'cpu'}",
        f"sampling.max_tokens={args.tokens // 2}",
        "sampling.max_in_flight=1",
        *("grpo.steps=2", "grpo.problems_per_step=1", f"grpo.group_size={args.rows}"),
        f"grpo.micro_batch_size={args.rows}",
    ]
    with tempfile.TemporaryDirectory(prefix="repl-rl-memory-") as folder:
        save_model(Path(folder), SIZES[args.size])
        for name in args.cases:
            settings = [f"model={folder}", *common, *CASES[name]]
            command = [sys.executable, __file__, "--case", *settings]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | MALLOC)
            if done.returncode:
                yield name, (done.stderr.strip() or "?").splitlines()[-1]
            else:
                estimate, measured = json.loads(done.stdout.splitlines()[-1])
                yield name, (estimate, measured)


def save_model(folder: Path, shape: dict[str, Any], device: str = "cpu") -> None:
    """Random weights, drawn on a device, in bfloat16; and a tokenizer that uses few of them."""
    save_tiny_model(folder / "tiny")
    save_tiny_model(folder)
    config = Qwen3Config.from_pretrained(folder)
    config.update({**shape, "tie_word_embeddings": True, "max_position_embeddings": 4096})
    config.layer_types = ["full_attention"] * shape["num_hidden_layers"]
    with torch.device(device):
        model: Any = Qwen3ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def peak(settings: Sequence[str]) -> tuple[float, float]:
    """(estimate, measured) in MiB of the updates of a run with these settings."""
    disable_progress_bar()
    config = resolve(overrides=settings)
    device = torch.device(config.sampling.device)
    engine = engine_kind("hf")
    held = precision(config, engine, device=device.type)
    files = to_train(read_files(str(config.model)), config.lora)
    row_tokens = 2 * config.sampling.max_tokens
    memory = measure(
        config,
        engine,
        files,
        held,
        row_tokens=row_tokens,
        is_training=True,
        recomputes=config.grpo.gradient_checkpointing is True,
        device=device.type,
    )
    if device.type == "cuda":
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
    update(TINY.format(model=config.model), config, held, device)  # imports, threads
    before = taken(device, "VmRSS")
    update(str(config.model), config, held, device)
    return memory.update_peak / MIB, (taken(device, "VmHWM") - before) / MIB


def update(model: str, config: Config, held: Precision, device: torch.device) -> None:
    """Load a model and take the steps of `config` with it; the peak counts from there."""
    files = to_train(read_files(model), config.lora)
    loaded = load_weights(files, device=device, precision=held)
    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = make_trainer(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            collect=lambda numbers, _: made_up(len(numbers), config),
            settings=config,
            credit=load_credit(config.grpo),
            precision=held,
            folder=Path(folder),
        )
        trainer._save_checkpoint = lambda *_, **__: None
        if device.type == "cpu":  # what loading took at most is forgotten
            Path("/proc/self/clear_refs").write_text("5")
        trainer.train()


def taken(device: torch.device, field: str) -> int:
    """Bytes: on a GPU the most that torch had allocated, else a field of the process's status."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def made_up(count: int, config: Config) -> list[Scored]:
    """Trajectories as long as they may be, of one line; every other one of a group is right."""
    size, num_tokens = config.grpo.group_size, config.sampling.max_tokens
    draw = torch.Generator().manual_seed(0)

    def ids() -> tuple[int, ...]:
        return tuple(torch.randint(10, 200, (num_tokens,), generator=draw).tolist())

    return [
        Scored(
            trajectory=Trajectory(
                problem_id=str(row // size),
                group_index=row // size,
                sibling_index=row % size,
                policy_version=0,
                seed=row,
                prompt_text="",
                prompt_ids=ids(),
                completion_ids=ids(),
                loss_mask=(True,) * num_tokens,
                logprobs=(-5.0,) * num_tokens,
                lines=(
                    Line(
                        index=0,
                        source=" x\n",
                        start=0,
                        stop=num_tokens,
                        outcome=LineOutcome(kind=OutcomeKind.SUBMITTED),
                    ),
                ),
                stop_reason=StopReason.SUBMITTED,
                submission="1",
            ),
            problem=Problem(id=str(row // size), statement="?"),
            verdict=None,
            reward=Reward(line_rewards=(0.0,), outcome_reward=float(row % 2)),
        )
        for row in range(count)
    ]


if __name__ == "__main__":
    main()
