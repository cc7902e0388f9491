"""TRL's stock trainer takes the environment: the client of `examples/openenv_client.py`, as it is.

The policy is a tiny model of random weights that is kept to calls of the tool. Which line it
writes, it samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv")

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

import openenv_client
from openenv_kit import serving

pytestmark = [
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Ours only calls what TRL says is experimental.
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory':UserWarning"),
]

LINES = ("undefined", "submit_final_answer(1)", "submit_final_answer(True)")
CALLS = [
    f'<tool_call>\n{{"name": "run_line", "arguments": {{"line": "{line}"}}}}\n</tool_call>'
    for line in LINES
]


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and a template whose calls TRL can read."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(symbols)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    made.chat_template = (templates / "qwen2_5.jinja").read_text()
    return made


class Caller(Qwen3ForCausalLM):
    """Random weights, of which each answer makes one of `answers`."""

    answers: list[list[int]]
    opening: list[int]
    """What stands before each answer."""

    def forward(self, input_ids: Any = None, **rest: Any) -> Any:
        out = super().forward(input_ids=input_ids, **rest)
        num_kept = out.logits.shape[1]
        bias = torch.zeros_like(out.logits)
        for row, ids in enumerate(input_ids.tolist()):
            size, start = len(self.opening), None
            for at in range(len(ids)):
                if ids[at + 1 - size : at + 1] == self.opening:
                    start = at + 1
                kept = at - len(ids) + num_kept
                if start is not None and kept >= 0:
                    for token in self.allowed(ids[start : at + 1]):
                        bias[row, kept, token] = 40.0
        out.logits = out.logits + bias
        return out

    def allowed(self, begun: list[int]) -> set[int]:
        """What may follow: the next tokens of the answers that begin so."""
        longer = [one for one in self.answers if len(one) > len(begun)]
        return {one[len(begun)] for one in longer if one[: len(begun)] == begun}


def caller(tokenizer: PreTrainedTokenizerFast) -> Caller:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Caller(config)  # type: ignore[no-untyped-call]
    # Each forward sees the whole sequence.
    model.generation_config.use_cache = False
    model.answers = [tokenizer(f"{call}<|im_end|>").input_ids for call in CALLS]
    model.opening = tokenizer("<|im_start|>assistant\n").input_ids
    return model


@pytest.mark.timeout(300)
def test_the_stock_trainer_trains_on_the_rewards_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    paid: list[float | None] = []

    class Session(openenv_client.ReplSession):
        def run_line(self, line: str) -> str:
            """Run a line of Python.

            Args:
                line: One line, without its newline.
            """
            written.append(line)
            return super().run_line(line)

        def get_reward(self) -> float | None:
            paid.append(super().get_reward())
            return paid[-1]

    question = [{"role": "user", "content": "Write lines.\n"}]
    rows = [{"prompt": question, "split": "train", "index": 0}]
    tokenizer = chat_tokenizer()
    with serving() as served:
        monkeypatch.setattr(openenv_client, "URL", served.url)
        trainer = GRPOTrainer(
            model=caller(tokenizer),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            environment_factory=Session,  # type: ignore[arg-type]  # it names columns
            args=GRPOConfig(
                output_dir=str(tmp_path),
                use_cpu=True,
                bf16=False,
                max_steps=1,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=700,
                max_tool_calling_iterations=1,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                gradient_checkpointing=False,
            ),
        )
        trainer.train()
    (logged,) = (row for row in trainer.state.log_history if "reward" in row)
    assert len(paid) == 4
    assert set(written) <= set(LINES)
    # A line that fails and then a stop; a wrong answer where a guess is right half the time; a
    # right one.
    assert {round(one, 9) for one in paid if one is not None} <= {-0.7, -1.0, 1.0}
    assert logged["reward"] == pytest.approx(sum(one for one in paid if one is not None) / 4)
    assert (logged["grad_norm"] > 0) is (len(set(paid)) > 1)
