"""An update beside stock TRL's: `python benchmarks/update.py [--model PATH] [--ways tree trl]`.

Each way is a process of its own that takes GRPO steps on the same made-up trajectories: groups
of siblings with one prompt, lines sampled and answered. It prints wall and CPU seconds of the last
step's forwards and backwards, and tokens per second: of CPU time on a CPU, of wall time on a GPU.
The peak is what came above the weights that were there; on a GPU it is all that torch allocated.
Without `--model` the model has random weights, in the shape of SmolLM2-135M or of Qwen3-0.6B.
"""

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from memory import MALLOC, taken
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedConfig,
    Qwen3Config,
)
from transformers.utils.logging import disable_progress_bar
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.base import engine_kind
from repl_rl.models.loading import read_files
from repl_rl.models.precision import precision
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
from repl_rl.update import token_tree as tree_attention
from repl_rl.update.grpo import LineGRPOTrainer, outcome_reward
from repl_rl.update.trainer import make_trainer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from tiny_model import save_tiny_model

SHAPES: dict[str, PreTrainedConfig] = {
    "smollm2": LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    ),
    "0.6B": Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    ),
}
WAYS = {
    "trl": "stock TRL",
    "parts": "rows, by length",
    "loop": "a tree, by branch",
    "tree": "a tree",
}
"""`loop` differs from `tree` on a GPU alone: there a tree is one attention a layer."""
MIB = 1 << 20


class Cost(NamedTuple):
    """Cost of a way's last step."""

    way: str
    num_tokens: int
    wall_s: float
    cpu_s: float
    peak: int
    """Bytes."""
    loss: float


def main() -> None:
    args = parsed(sys.argv[1:])
    if args.way:
        print(json.dumps(measured(args)))
        return
    is_cpu = args.device == "cpu"
    where = f"{torch.get_num_threads()} threads" if is_cpu else torch.cuda.get_device_name()
    print(f"{args.groups * args.siblings} trajectories of {num_tokens(args):,} tokens, {where}")
    rate = "tokens/CPU s" if is_cpu else "tokens/s"
    print(f"{'':<17} {'wall s':>7} {'CPU s':>7} {rate:>12} {'peak MiB':>9} {'loss':>10}")
    for cost in costs(sys.argv[1:]):
        speed = cost.num_tokens / (cost.cpu_s if is_cpu else cost.wall_s)
        print(
            f"{WAYS[cost.way]:<17} {cost.wall_s:>7.2f} {cost.cpu_s:>7.2f} {speed:>12,.0f} "
            f"{cost.peak / MIB:>9,.0f} {cost.loss:>10.6f}",
            flush=True,
        )


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="By default one of random weights.")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["trl", "parts", "tree"])
    parser.add_argument("--shape", choices=SHAPES, default="smollm2", help="Without --model.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, help="By default 1, on a GPU 3: the first warm up.")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--siblings", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=115, help="Tokens of a prompt.")
    parser.add_argument("--common", type=int, default=70, help="Of them, those of all prompts.")
    parser.add_argument("--completion", type=int, default=75, help="Tokens of one, on average.")
    parser.add_argument("--set", nargs="+", default=[], help="Settings, such as grpo.dtype=mixed.")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    args.steps = args.steps or (1 if args.device == "cpu" else 3)
    return args


def costs(words: Sequence[str]) -> Iterator[Cost]:
    """Measure each way in a process of its own; SystemExit with what one says that fails."""
    args = parsed(words)
    with tempfile.TemporaryDirectory(prefix="repl-rl-update-") as folder:
        if args.model is None:
            args.model = folder
            save_model(Path(folder), SHAPES[args.shape])
        model = str(read_files(args.model).base)
        for way in args.ways:
            command = [sys.executable, __file__, *words, "--model", model, "--way", way]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | MALLOC)
            if done.returncode:
                sys.exit(done.stderr)
            yield Cost(way, num_tokens(args), *json.loads(done.stdout.splitlines()[-1]))


def num_tokens(args: argparse.Namespace) -> int:
    return sum(len(one.prompt_ids) + len(one.completion_ids) for one in trajectories(args))


def save_model(folder: Path, shape: PreTrainedConfig) -> None:
    """A model without weights, and a tokenizer that uses few of its ids."""
    save_tiny_model(folder)
    (folder / "model.safetensors").unlink()
    shape.save_pretrained(folder)


def load(args: argparse.Namespace, dtype: torch.dtype) -> Any:
    """The model, with random weights where it has none of its own."""
    if list(Path(args.model).glob("*.safetensors")) or not Path(args.model).is_dir():
        return AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).to(args.device)
    torch.manual_seed(0)
    with torch.device(args.device):
        config = AutoConfig.from_pretrained(args.model)
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def trajectories(args: argparse.Namespace) -> list[Trajectory]:
    """Lines of 12 sampled tokens, each answered by 8, until the completion is full."""
    dice = random.Random(0)
    common = [dice.randrange(5, 250) for _ in range(args.common)]
    found = []
    for group in range(args.groups):
        rest = [dice.randrange(5, 250) for _ in range(args.prompt - args.common)]
        for sibling in range(args.siblings):
            size = round(args.completion * (0.5 + dice.random()))
            found.append(trajectory([*common, *rest], size, group, sibling, dice))
    return found


def trajectory(
    prompt: list[int], size: int, group: int, sibling: int, dice: random.Random
) -> Trajectory:
    sampled = [at % 20 < 12 for at in range(size)]
    starts = range(0, size, 20)
    outcome = LineOutcome(kind=OutcomeKind.OK_OUTPUT, observation="")
    return Trajectory(
        problem_id=str(group),
        group_index=group,
        sibling_index=sibling,
        policy_version=0,
        seed=sibling,
        prompt_text="",
        prompt_ids=tuple(prompt),
        completion_ids=tuple(dice.randrange(5, 250) for _ in range(size)),
        loss_mask=tuple(sampled),
        logprobs=tuple(-5.0 * one for one in sampled),
        lines=tuple(
            Line(index=i, source="", start=at, stop=min(at + 12, size), outcome=outcome)
            for i, at in enumerate(starts)
        ),
        stop_reason=StopReason.EOS,
        submission=None,
    )


def measured(args: argparse.Namespace) -> tuple[float, float, float, float]:
    """(wall seconds, CPU seconds, bytes at the peak, loss) of the last step."""
    disable_progress_bar()
    rows = trajectories(args)
    longest = max(len(t.completion_ids) for t in rows)
    config = resolve(
        overrides=[
            f"model={args.model}",
            f"sampling.device={args.device}",
            f"sampling.max_tokens={longest}",
            *(f"grpo.steps={args.steps}", f"grpo.problems_per_step={args.groups}"),
            *(f"grpo.group_size={args.siblings}", "grpo.line_credit_weight=0"),
            *(("grpo.micro_batch_size=64",) if args.device == "cuda" else ()),
            *args.set,
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = made(config, rows, args, Path(folder))
        costs: dict[int, list[float]] = {}
        step = trainer.training_step

        def timed(*inputs: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            out = step(*inputs, **named)
            if args.device == "cuda":
                torch.cuda.synchronize()
            cost = costs.setdefault(trainer.state.global_step, [0.0, 0.0])
            cost[0] += time.perf_counter() - wall
            cost[1] += time.process_time() - cpu
            return out

        trainer.training_step = timed
        trainer._save_checkpoint = lambda *_, **__: None
        Path("/proc/self/clear_refs").write_text("5")
        before = taken(torch.device("cpu"), "VmRSS")
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
        if args.device == "cuda":
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = taken(torch.device("cpu"), "VmHWM") - before
        loss = next(row["loss"] for row in trainer.state.log_history if "loss" in row)
    wall, cpu = costs[args.steps - 1]
    return wall, cpu, peak, loss


def made(config: Config, rows: list[Trajectory], args: argparse.Namespace, folder: Path) -> Any:
    """The trainer of a way, fed with `rows`."""
    scored = [
        Scored(
            trajectory=row,
            problem=Problem(id=row.problem_id, statement=""),
            verdict=None,
            reward=Reward(
                line_rewards=(0.0,) * len(row.lines), outcome_reward=float(row.sibling_index % 3)
            ),
        )
        for row in rows
    ]
    held = precision(config, engine_kind("hf"), device=args.device)
    ours = make_trainer(
        model=load(args, held.weights),
        tokenizer=AutoTokenizer.from_pretrained(args.model),
        collect=lambda numbers, _: scored[: len(numbers)],
        settings=config,
        credit=load_credit(config.grpo),
        precision=held,
        folder=folder,
    )
    if args.way != "trl":
        assert isinstance(ours, LineGRPOTrainer)
        ours.takes_trees = ours.takes_trees and args.way in ("tree", "loop")
        if args.way == "loop":
            tree_attention.AT_ONCE = frozenset()
        return ours
    fed = ours.collect([str(i) for i in range(len(rows))])
    given: dict[str, Any] = {  # a GRPOConfig, among others
        "args": ours.args,
        "processing_class": ours.processing_class,
        "train_dataset": ours.train_dataset,
    }
    del ours  # and its model: one is in memory at a time
    gc.collect()
    return GRPOTrainer(
        model=load(args, held.weights),
        reward_funcs=[outcome_reward],
        rollout_func=lambda prompts, _: fed,
        **given,
    )


if __name__ == "__main__":
    main()
