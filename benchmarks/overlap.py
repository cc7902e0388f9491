"""Gain of rollouts beside the update: `benchmarks/overlap.py --vllm PYTHON --output DIR`.

The packaged task and a starter whose heads vLLM's kernels for CPUs take (made once, in DIR, or
MODEL), `vllm serve` on a core of its own, the trainer with its kernels on another. Each arm trains
for `--steps` steps of 6 problems in groups of 8:

    staleness 0    rollouts, then their update
    staleness 1    rollouts of the next step while the update runs

Every line takes `--delays` milliseconds more in its kernel, as a slow tool would. Reported are the
wall time of the steps, the share of it that the trainer waits for trajectories, the share in which
the server has no line to sample, and the solve rate of the last five steps. The server's time is
real, and so is the trainer's; on two cores an update is long beside what a GPU needs.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from repl_rl.rollout import runner

SMALL = {
    "grpo.problems_per_step": 6,
    "eval.problems": 0,
    "report.curve": "false",
    "report.checkpoint_every": 1000,
    "report.sample_every": 1000,
    "sampling.engine": "vllm-server",
}
SERVE = (
    *("--max-model-len", "1024", "--max-num-batched-tokens", "1024", "--max-num-seqs", "48"),
    *("--kv-cache-memory-bytes", str(256 << 20), "--block-size", "32", "--dtype", "float32"),
    *("--skip-tokenizer-init", "--enforce-eager", "--no-enable-chunked-prefill"),
    *("--enable-scale-out", "--logprobs-mode", "processed_logprobs"),
    *("--worker-extension-cls", "repl_rl.engines.vllm_worker.PolicyLoader"),
)
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
START_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--vllm", default=sys.executable, help="a Python that has vLLM")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--delays", type=float, nargs="+", default=[0, 50, 250])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--arm", nargs=4, metavar=("URL", "DELAY", "STALENESS", "DIR"))
    args = parser.parse_args()
    if args.arm:
        one_arm(args.model, args.steps, *args.arm)
        return
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    model = args.model or made(output / "starter")
    print(f"{'delay ms':>8}{'staleness':>10}{'s a step':>10}{'trainer waits':>15}"
          f"{'server idle':>13}{'solved':>8}", flush=True)  # fmt: skip
    with served(args.vllm, model, output / "server.log") as url:
        for delay in args.delays:
            for staleness in (0, 1):
                folder = output / f"{delay:g}-{staleness}"
                if not (folder / "arm.json").exists():
                    shutil.rmtree(folder, ignore_errors=True)  # of a call that was ended
                    words = ["--arm", url, str(delay), str(staleness), str(folder)]
                    again = [
                        "--model",
                        model,
                        "--output",
                        str(output),
                        "--steps",
                        str(args.steps),
                        *words,
                    ]
                    subprocess.run([*pinned(1), sys.executable, __file__, *again], check=True)
                print(row(delay, staleness, folder), flush=True)


def made(path: Path) -> str:
    """A starter of this task with heads of 32, smaller than the default one."""
    from repl_rl.tasks.base import load_task
    from repl_rl.training.starter import Recipe, starter_sandbox
    from repl_rl.training.train import make_starter
    from repl_rl.viewer.show.display import Screen

    recipe = Recipe(num_demonstrations=1500, steps=250, hidden_size=128, intermediate_size=384)
    if not path.exists():
        task = load_task("sympy-proofs")[0]
        with Screen() as screen:
            make_starter(task, recipe, path, screen, isolation=starter_sandbox().isolation)
    return str(path)


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core % (os.cpu_count() or 1))]


@contextmanager
def served(vllm: str, model: str, log: Path) -> Iterator[str]:
    """A server of these weights on the first core; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # By its module: the console script asks for metadata that builds for CPUs lack.
    words = [*(vllm, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"), "--model", model]
    words += ["--host", "127.0.0.1", "--port", str(port), *SERVE]
    with log.open("w") as to:
        process = subprocess.Popen(
            [*pinned(0), *words],
            env=os.environ | ENVIRONMENT,
            stdout=to,
            stderr=to,
            start_new_session=True,
        )
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while not answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start; see {log}")
            time.sleep(0.5)
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/health", timeout=2).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def one_arm(model: str, steps: int, url: str, delay: str, staleness: str, folder: str) -> None:
    """Train in this process, whose kernels take longer, and write what its engine was busy for."""
    from repl_rl.config.resolve import resolve
    from repl_rl.rollout.plan import make_plan
    from repl_rl.training import steps as training_steps
    from repl_rl.training.train import train

    slow(float(delay) / 1000)
    settings = SMALL | {
        "grpo.steps": steps,
        "grpo.staleness": staleness,
        "sampling.servers": json.dumps([url]),
        "preset": "starter",
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    busy: list[float] = []
    collect = training_steps.Training.collect

    def noted(self: Any, *given: Any) -> Any:
        began.append(time.monotonic())
        scored = collect(self, *given)
        busy[:] = [self.runtime.engine.busy_s]
        return scored

    began: list[float] = []
    training_steps.Training.collect = noted  # type: ignore
    train(make_plan(resolve(flags={"model": model}, overrides=overrides), to_train=True), folder)
    report = {"seconds": time.monotonic() - began[0], "busy_s": busy[0]}
    (Path(folder) / "arm.json").write_text(json.dumps(report))


def slow(delay_s: float) -> None:
    """Let every line wait before its kernel runs it."""
    run = runner._TimedKernel.run

    async def waited(self: Any, source: str) -> Any:
        with self.waits.measure("kernel_s"):
            await asyncio.sleep(delay_s)
        return await run(self, source)

    if delay_s:
        runner._TimedKernel.run = waited  # type: ignore[method-assign]


def row(delay: float, staleness: int, folder: Path) -> str:
    rows = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [one for one in rows if "loss" in one]
    report = json.loads((folder / "arm.json").read_text())
    seconds = report["seconds"]
    waits = sum(one[f"time/{part}"] for one in steps for part in ("rollout", "kernel", "grading"))
    rate = sum(one["solve_rate"] for one in steps[-5:]) / len(steps[-5:])
    return (
        f"{delay:>8g}{staleness:>10}{seconds / len(steps):>10.2f}{waits / seconds:>15.0%}"
        f"{1 - report['busy_s'] / seconds:>13.0%}{rate:>8.0%}"
    )


if __name__ == "__main__":
    main()
