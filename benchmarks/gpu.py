"""Check and measure a GPU: `python benchmarks/gpu.py [--output docs/engines.md]`, in ten minutes.

First the tests that take a device: the laws of the engine `hf`, losses beside those of a CPU, a run
that goes on. Then trainings of a few steps on random weights, each in a process of its own, of
which a page shows tokens per second, where the time goes, and peak memory. Exit code 1 if a test or
a training fails. `--device cpu --sizes tiny` does all of it without a GPU. A `vllm` that is not
installed, and what no time is left for, has no row.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/e2e/test_device.py", "tests/laws/test_device.py")
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "head_dim": 32, "vocab_size": 1024},
    "0.6B": {"hidden_size": 1024, "num_hidden_layers": 28, "head_dim": 128, "vocab_size": 151_936},
    "1.7B": {"hidden_size": 2048, "num_hidden_layers": 28, "head_dim": 128, "vocab_size": 151_936},
}
"""Of a Qwen3 with 16 heads (tiny: 2), half as many for keys, and a tied head."""
LINE_TOKENS = 12
"""Of a line of random weights on average: one id in so many ends in a newline."""
SETTINGS = (
    *("grpo.steps=4", "grpo.problems_per_step=8", "grpo.group_size=8", "grpo.dtype=bfloat16"),
    *("sampling.max_tokens=512", "sampling.max_lines=40", "sampling.max_line_tokens=64"),
    *("sampling.max_in_flight=64", "eval.problems=8", "report.curve=false"),
)
TINY = (
    *("grpo.steps=2", "grpo.problems_per_step=1", "grpo.group_size=4", "grpo.dtype=float32"),
    *("sampling.max_tokens=96", "sampling.max_lines=4", "sampling.max_in_flight=4"),
    *("sandbox.standby=1", "eval.problems=2"),
)
TIMES = ("rollout", "kernel", "grading", "sync", "update", "other")
HEAD = ("size", "engine", "rollout tokens/s", "update tokens/s", *TIMES, "peak GiB")
NO_PEAK = "-"
"""On a CPU, whose memory torch does not count."""
PLUGINS = ("pytest_timeout", "repl_rl.golden.pytest_plugin")
"""Of pytest. The others that a machine has may warn, and a warning ends a session of tests."""
SECONDS = 570.0
Row = Mapping[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=["0.6B", "1.7B"])
    parser.add_argument("--engines", nargs="+", choices=["hf", "vllm"], default=["hf", "vllm"])
    parser.add_argument("--output", type=Path, help="The page that the section ends.")
    parser.add_argument("--no-tests", action="store_true", help="Measure alone.")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(trained(*args.case)))
        return
    deadline = time.monotonic() + SECONDS
    passed = args.no_tests or tests_pass(args.device, deadline)
    cases = [(size, engine) for size in args.sizes for engine in args.engines]
    found = [measured(*case, args.device, deadline) for case in cases]
    rows = [row for row in found if row is not None]
    tests = "not run" if args.no_tests else "passed" if passed else "FAILED"
    text = page(rows, about(args.device), tests)
    print(text) if args.output is None else put(args.output, text)
    sys.exit(not passed or any("failed" in row.values() for row in rows))


def put(page: Path, text: str) -> None:
    """Let the section `text` end a page, in place of the one that did."""
    heading = text.partition("\n")[0]
    before = page.read_text().partition(heading)[0] if page.exists() else ""
    page.write_text(before + text)


def tests_pass(device: str, deadline: float) -> bool:
    """Run the tests of a device; what they print goes to stderr."""
    plugins = [word for name in PLUGINS for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", *plugins, *TESTS, "-m", "gpu"]
    ours_alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = os.environ | ours_alone | {"REPL_RL_TEST_DEVICE": device}
    left = deadline - time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, timeout=left)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def measured(size: str, engine: str, device: str, deadline: float) -> Row | None:
    """A row of the page, by a training in a process of its own; None where there is none."""
    row = dict.fromkeys(HEAD, "") | {"size": size, "engine": engine}
    left = deadline - time.monotonic()
    if left < 0 or (engine != "hf" and importlib.util.find_spec(engine) is None):
        return None
    command = [sys.executable, __file__, "--case", size, engine, device]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return row | {"rollout tokens/s": "failed"}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {**row, **found}


def trained(size: str, engine: str, device: str) -> dict[str, str]:
    """Cells of the page, of a training on random weights. The first step, which warms up, is left
    out."""
    from repl_rl.rollout.plan import make_plan
    from repl_rl.settings import resolve
    from repl_rl.show.display import silent

    # As `repl-rl` does: with several GPUs transformers would split batches over them.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    with tempfile.TemporaryDirectory(prefix="repl-rl-gpu-") as folder:
        model, run = Path(folder) / "model", Path(folder) / "run"
        names = (f"model={model}", f"sampling.engine={engine}", f"sampling.device={device}")
        config = resolve(overrides=[*names, *SETTINGS, *(TINY if size == "tiny" else ())])
        plan = make_plan(config, to_train=True)  # vLLM is prepared before torch is imported
        import torch

        from repl_rl.training.train import train

        save_model(model, SHAPES[size])
        train(plan, run, silent())
        rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    return cells([row for row in rows if "time/update" in row][1:], peak)


def cells(steps: Sequence[Mapping[str, float]], peak: float | None) -> dict[str, str]:
    """What a training's steps add up to; `peak` in GiB."""
    seconds = {name: sum(step[f"time/{name}"] for step in steps) for name in TIMES}
    sampled, whole = sum(step["active_tokens"] for step in steps), sum(seconds.values())
    in_rollouts = seconds["rollout"] + seconds["kernel"] + seconds["grading"]
    return {
        "rollout tokens/s": f"{sampled / in_rollouts:,.0f}",
        "update tokens/s": f"{sampled / seconds['update']:,.0f}",
        **{name: f"{took / whole:.0%}" for name, took in seconds.items()},
        "peak GiB": NO_PEAK if peak is None else f"{peak:.1f}",
    }


def save_model(folder: Path, shape: Mapping[str, Any]) -> None:
    """Random weights, and a tokenizer whose every id is text: some of it ends a line."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "\u010a"
    more = (f"x{n}{'' if n % LINE_TOKENS else newline}" for n in range(shape["vocab_size"]))
    names = [*[*letters, *more][: shape["vocab_size"] - 1], "<|end|>"]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    num_heads = 2 if shape["hidden_size"] < 1024 else 16
    config = Qwen3Config(
        **shape,
        intermediate_size=3 * shape["hidden_size"],
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // 2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def about(device: str) -> str:
    """The machine, what it runs on, and the day."""
    import torch
    import transformers

    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{name}, {versions}, {datetime.date.today()}"


def page(rows: Sequence[Row], machine: str, tests: str) -> str:
    """The section that shows the rows."""
    table = [HEAD, ["--"] * len(HEAD), *([row[name] for name in HEAD] for row in rows)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in table)
    return INTRODUCTION.format(machine=machine, tests=tests) + (text if rows else "")


INTRODUCTION = """\
### Measured by `make gpu`

Machine: {machine}

Tests (laws of the engine `hf`, losses beside those of a CPU, a run that goes on): {tests}

The trainings have random weights of the shapes of Qwen3-0.6B and Qwen3-1.7B in bfloat16, and 64
trajectories a step of up to 512 tokens, in lines of about 12. Their lines are no Python, so kernels
have little to do. Tokens are sampled tokens. The middle columns are the shares of a step's time.
The peak is what torch had allocated at most, in GiB.

"""


if __name__ == "__main__":
    main()
