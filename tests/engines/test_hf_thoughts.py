"""A thought that a real model samples: its tokens, and their log-probabilities."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from attempt_kit import an_attempt
from chat_families import QWEN, apply_of, family_tokenizer
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.records import Trajectory
from repl_rl.rollout.builder import check_trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.training.audit import Counts, Witness
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.tokens import TokenizerCodec
from repl_sandbox.fake import FakeKernel

pytestmark = pytest.mark.slow

CODEC = TokenizerCodec(family_tokenizer(QWEN), eos_ids=[])
FORMAT = load_format("chat", apply_of(QWEN)).with_thinking()
(MARKER,) = CODEC.encode_template("</think>")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1 + max(family_tokenizer(QWEN).get_vocab().values()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        max_position_embeddings=2048,
    )
    return Qwen3ForCausalLM(config).eval()


def roll_out(model: Any, witness: Witness, *, seed: int) -> Trajectory:
    """A marker is as likely as any token: some thoughts end with one, others at their limit."""

    async def use() -> Trajectory:
        engine = HFEngine(model, newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids, num_rows=1)
        limits = SamplingConfig(
            max_think_tokens=300, max_lines=2, max_line_tokens=40, max_tokens=800
        )
        sampler = LineSampler(witness.watch(engine), CODEC, FORMAT, limits, context_tokens=2048)
        prompt = FORMAT.prompt("{{problem}}", "?", python_version="3")
        made = await sampler.sample(an_attempt(seed=seed), prompt, FakeKernel({}))
        await engine.aclose()
        return made

    return asyncio.run(use())


def fresh(model: Any, made: Trajectory) -> list[float]:
    ids = torch.tensor([made.prompt_ids + made.completion_ids])
    with torch.no_grad():
        scores = model(ids).logits[0].log_softmax(-1)
    start = len(made.prompt_ids)
    return [scores[start + t - 1, i].item() for t, i in enumerate(made.completion_ids)]


def test_a_thought_is_what_the_engine_sampled_with_its_own_log_probabilities(model: Any) -> None:
    ends = set()
    for seed in range(3):
        witness, counts = Witness(), Counts()
        made = roll_out(model, witness, seed=seed)
        check_trajectory(made, maker="a test")
        counts.take(made, CODEC, FORMAT)
        counts.take_witnessed(made, witness)
        assert (counts.drifted, counts.mask_disagreements, counts.misread_observations) == (0, 0, 0)
        triples = zip(made.logprobs, fresh(model, made), made.loss_mask, strict=True)
        assert max(abs(a - b) for a, b, is_sampled in triples if is_sampled) < 1e-5
        assert made.thought is not None
        thought = made.completion_ids[: made.thought.stop]
        assert MARKER not in thought[:-1]
        ends.add(thought[-1] == MARKER)
        assert len(thought) == 300 or thought[-1] == MARKER
        assert made == roll_out(model, Witness(), seed=seed)
    assert ends == {True, False}
