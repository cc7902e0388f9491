"""Measure slow tools: `python benchmarks/tool_loop.py [--share 0.05] [--call-ms 10] [--tries 3]`.

32 trajectories (4 prompts of 8 siblings) of a random model of 1.3 M weights: 6 rounds of 12 sampled
tokens with a call after each, then 12 tokens that end. A call takes `--call-ms`, and a share of
them 2 s; every side makes the same calls.

    TRL        a GRPOTrainer with `tools=[run]`, its own tool loop and its default generation; once
               more with an `async` tool (continuous batching takes longer for so small a model)
    repl-rl    RolloutRunner, LineSampler and HFEngine, with kernels that sleep

A random model writes no calls. TRL's trainer samples 12 tokens for each row, throws them away and
goes on with 12 that spell a call, or the end. With repl-rl the sampled tokens stay, the engine
takes every 12 of them for a line, or for the end, and the codec reads each line as one statement.
Prompts, replies and answers (with TRL's chat template around them) have the same number of tokens
on every side. Only rollouts are timed. The best try counts: other work only ever slows.
"""

import argparse
import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from huggingface_hub import constants
from sampling import make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, logging
from trl.chat_template_utils import qwen3_chat_template
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import bound_reward
from repl_rl.engines.base import Engine, EngineWrapper, LineEnd, SampledLine
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.records import Attempt, Problem, Verdict
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.transcript.format import PROBLEM_MARKER, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.types import ExecStatus, Execution

SIBLINGS, ROUNDS, SAMPLED = 8, 6, 12
STATEMENTS = [f"Solve problem {number}." for number in range(4)]
COUNT = len(STATEMENTS) * SIBLINGS
CALL_S, STRAGGLER_S = 0.01, 2.0
OUTPUT = "1 2 3 4 5 6 7 8"
CALL = '{"name": "run", "arguments": {}}'
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
PLAIN = TranscriptFormat(name="plain", banner="", primary=">>>", secondary="...")


class Made(NamedTuple):
    """How long one side took, and the tokens of each prompt and of each completion."""

    seconds: float
    num_prompt: int
    num_completion: int


Side = Callable[[list[float]], Made]
"""Gets the seconds of each call: entry `r * COUNT + i` is that of trajectory i in round r."""
Watch = Callable[[], AbstractContextManager[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, nargs="+", default=[0.05, 0.0])
    parser.add_argument("--call-ms", type=float, nargs="+", default=[1000 * CALL_S])
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    logging.set_verbosity_error()
    sides = all_sides()
    print(f"{'call ms':>7}{'slow':>6}  {'side':26}{'s':>7}{'trajectories/min':>18}{'/ TRL':>8}")
    for call_ms, share in itertools.product(args.call_ms, args.share):
        found = best_seconds(sides, share, args.tries, call_s=call_ms / 1000)
        for name, seconds in found.items():
            rate = COUNT / seconds * 60
            print(f"{call_ms:>7g}{share:>6.0%}  {name:26}{seconds:>7.2f}{rate:>18.0f}"
                  f"{found['TRL'] / seconds:>8.2f}", flush=True)  # fmt: skip


def best_seconds(
    sides: Mapping[str, Side], share: float, tries: int, *, call_s: float = CALL_S
) -> dict[str, float]:
    """Seconds of each side's best try, with that share of slow calls."""
    each = delays(share, call_s)
    # Sides take turns: a busy spell of the machine meets all of them.
    took = [[make(each).seconds for make in sides.values()] for _ in range(tries)]
    return dict(zip(sides, map(min, zip(*took, strict=True)), strict=True))


def all_sides() -> dict[str, Side]:
    """Every side by name. Each has run once, and made as many tokens as the others."""
    sides: dict[str, Side] = {"TRL": trl, "TRL, async tool": partial(trl, is_async=True)}
    no_delays = [0.0] * (ROUNDS * COUNT)
    found = [make(no_delays) for make in sides.values()]
    sides["repl-rl"] = lambda each: asyncio.run(repl_rl(each, found[0], make_engine()))
    found.append(sides["repl-rl"](no_delays))
    assert len({one[1:] for one in found}) == 1, f"not the same work: {found}"
    return sides


def delays(share: float, call_s: float = CALL_S) -> list[float]:
    """The seconds of each call; `share` of them are slow."""
    slow = round(share * ROUNDS * COUNT)
    each = [STRAGGLER_S] * slow + [call_s] * (ROUNDS * COUNT - slow)
    random.Random(1).shuffle(each)  # one trajectory gets two slow calls, as in most draws
    return each


def measured(started: float, prompts: Iterable[Any], completions: Iterable[Any]) -> Made:
    """ValueError unless all prompts have one length, and all completions."""
    seconds = time.perf_counter() - started
    (num_prompt,), (num_completion,) = set(map(len, prompts)), set(map(len, completions))
    return Made(seconds, num_prompt, num_completion)


class CallingTrainer(GRPOTrainer):
    """TRL's trainer with a model that calls a tool `ROUNDS` times and ends; see the module."""

    made: Made
    turn = 0
    watch: Watch = nullcontext

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        with self.watch():
            out = super()._generate(prompts)
        self.made = measured(started, out[0], out[1])
        return out

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        generate: Any = super()._generate_single_turn
        sampled, logprobs = generate(*args, **kwargs)
        assert len(sampled) == COUNT
        end = f"<tool_call>{CALL}</tool_call><|im_end|>" if self.turn < ROUNDS else "<|im_end|>"
        self.turn += 1
        tokenizer: Any = self.processing_class
        ids = tokenizer.encode(end)
        ids = tokenizer.encode("x") * (SAMPLED - len(ids)) + ids
        return [list(ids) for _ in sampled], logprobs


def trl(
    each: list[float],
    *,
    is_async: bool = False,
    make: Callable[[], Any] = make_model,
    device: str = "cpu",
    watch: Watch = nullcontext,
) -> Made:
    """One generation phase of a trainer of its own, inside `watch`."""
    left = iter(each)
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in STATEMENTS]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            folder, per_device_train_batch_size=COUNT, num_generations=SIBLINGS,
            use_cpu=device == "cpu", max_completion_length=512, bf16=False,
            generation_kwargs={"max_new_tokens": SAMPLED}, report_to="none")  # fmt: skip
        trainer = CallingTrainer(
            make(), no_reward, config,
            Dataset.from_list(rows), processing_class=make_tokenizer(),
            tools=[make_tool(left, is_async=is_async)])  # fmt: skip
        trainer.watch = watch
        model: Any = trainer.model
        model.train()
        inputs: list[Any] = [row for row in rows for _ in range(SIBLINGS)]
        trainer._generate_and_score_completions(inputs)
    assert next(left, None) is None, "a call was not made"
    return trainer.made


def no_reward(completions: list[Any], **_: Any) -> list[float | None]:
    return [0.0] * len(completions)


def make_tool(left: Iterator[float], *, is_async: bool) -> Callable[[], Any]:
    def run() -> str:
        """Run the next statement."""
        time.sleep(next(left))
        return OUTPUT

    async def run_async() -> str:
        await asyncio.sleep(next(left))
        return OUTPUT

    return update_wrapper(run_async, run) if is_async else run


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Each word of the chat template is a token, and so are its tags and a call."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<|im_start|>", "<|im_end|>", *TAGS, CALL])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = trainers.BpeTrainer(vocab_size=2048, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([qwen3_chat_template, OUTPUT, *STATEMENTS] * 2, words)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer


@dataclass
class Lines(EngineWrapper):
    """An engine whose every `SAMPLED` tokens are a line; after `num_ids` ids, the end."""

    num_ids: int

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await super().line(ids, max_tokens=SAMPLED, seed=seed)
        return replace(line, end=LineEnd.NEWLINE if len(ids) < self.num_ids else LineEnd.EOS)


def make_engine() -> Engine:
    return HFEngine(make_model(), newline_ids=set(), eos_ids=set(), num_rows=COUNT)


class Codec(ByteCodec):
    """A token for each character written; whatever was sampled reads as one statement."""

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return " solve(x**2 - 4)\n"


@dataclass(frozen=True)
class SleepingKernel:
    left: Iterator[float]
    """Seconds of the calls to come."""
    output: str

    async def run(self, source: str) -> Execution:
        await asyncio.sleep(next(self.left))
        return Execution(status=ExecStatus.OK, output=self.output)

    async def aclose(self) -> None:
        assert next(self.left, None) is None, "a call was not made"


class NoJudge:
    """Nothing is ever submitted."""

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        raise AssertionError


async def repl_rl(
    each: list[float], like: Made, engine: Engine, *, watch: Watch = nullcontext
) -> Made:
    """One rollout phase, with prompts and completions as long as those of `like`."""
    num_observed = (like.num_completion - (ROUNDS + 1) * SAMPLED) // ROUNDS
    output = "4" * (num_observed - len("\n>>>")) + "\n"

    async def acquire(*, seed: int) -> SleepingKernel:
        return SleepingKernel(iter(each[seed::COUNT]), output)

    lines = Lines(engine, like.num_prompt + like.num_completion - SAMPLED)
    runner = RolloutRunner(
        task=SimpleNamespace(prompt=PROBLEM_MARKER), fmt=PLAIN,
        sampler=LineSampler(lines, Codec(), PLAIN, SamplingConfig(), context_tokens=1024),
        kernels=SimpleNamespace(acquire=acquire),
        scorer=Scorer(task_spec="", judge=NoJudge(), reward=bound_reward(RewardConfig())),
        max_in_flight=COUNT)  # fmt: skip
    started = time.perf_counter()
    with watch():
        scored = await runner.run([attempt(number, like.num_prompt) for number in range(COUNT)])
    made = [(one.trajectory.prompt_ids, one.trajectory.completion_ids) for one in scored]
    return measured(started, *zip(*made, strict=True))


def attempt(number: int, num_prompt: int) -> Attempt:
    group, sibling = divmod(number, SIBLINGS)
    statement = STATEMENTS[group].ljust(num_prompt - len(">>> # \n>>>"), ".")
    problem = Problem(id=str(group), statement=statement)
    return Attempt(problem=problem, group_index=group, sibling_index=sibling, seed=number)


if __name__ == "__main__":
    main()
