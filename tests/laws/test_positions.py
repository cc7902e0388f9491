"""A trajectory is scored as the model would read it alone, for models that know where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.models.precision import Precision
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.trainer import make_trainer

pytestmark = [pytest.mark.slow, pytest.mark.train]

VOCABULARY, PAD = 48, 0
# (tokens of the prompt, tokens of the completion)
LENGTHS = ((1, 6), (7, 2), (4, 9), (2, 1), (9, 5))


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LineGRPOTrainer:
    """Trainer of a random GPT-2: it adds a vector to each token that says how many came before."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=None,
        eos_token_id=PAD,
    )
    model = GPT2LMHeadModel(shape).eval()
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(10.0)  # where it is counts as much as what it reads
    backend = Tokenizer(models.WordLevel({"<pad>": PAD, "<unk>": 1}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<pad>", pad_token="<pad>"
    )
    grpo = GRPOConfig(steps=1, problems_per_step=1, group_size=4, micro_batch_size=4)
    return make_trainer(
        model=model,
        tokenizer=tokenizer,
        collect=lambda _numbers, _version: [],
        settings=Config(model="m", sampling=SamplingConfig(device="cpu"), grpo=grpo),
        credit=load_credit(grpo),
        precision=Precision(),
        folder=tmp_path,
    )


@pytest.fixture
def rows() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(2, VOCABULARY, (sum(row),), generator=generator) for row in LENGTHS]


def score(trainer: Any, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Scores of each row's completion, as the update asks for them: padded to a batch on both
    sides."""
    num_prompt, num_completion = map(max, zip(*LENGTHS, strict=True))
    ids = torch.full((len(rows), num_prompt + num_completion), PAD)
    mask = torch.zeros_like(ids)
    for i, (row, (before, after)) in enumerate(zip(rows, LENGTHS, strict=True)):
        ids[i, num_prompt - before : num_prompt + after] = row
        mask[i, num_prompt - before : num_prompt + after] = 1
    with torch.no_grad():
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, num_completion
        )
    return [of_row[:after] for of_row, (_, after) in zip(logps, LENGTHS, strict=True)]


def score_alone(trainer: Any, row: torch.Tensor, *, num_prompt: int) -> torch.Tensor:
    with torch.no_grad():
        logits = trainer.model(row[None]).logits[0] / trainer.temperature
    logps = torch.log_softmax(logits[num_prompt - 1 : -1], dim=-1)
    return logps.gather(1, row[num_prompt:, None])[:, 0]


def worst_difference(trainer: LineGRPOTrainer, rows: list[torch.Tensor]) -> float:
    gaps = [
        (together - score_alone(trainer, row, num_prompt=num_prompt)).abs().max().item()
        for together, row, (num_prompt, _) in zip(score(trainer, rows), rows, LENGTHS, strict=True)
    ]
    return max(gaps)


@pytest.mark.parametrize("takes_trees", [True, False])
def test_padding_moves_no_token(
    trainer: LineGRPOTrainer, rows: list[torch.Tensor], takes_trees: bool
) -> None:
    assert trainer.takes_trees
    trainer.takes_trees = takes_trees
    assert worst_difference(trainer, rows) < 1e-5


def test_positions_left_to_the_model_would_count_padding(
    trainer: LineGRPOTrainer, rows: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail."""
    trainer.takes_trees = False
    monkeypatch.setattr("repl_rl.update.forward.partial", lambda model, **_: model)
    assert worst_difference(trainer, rows) > 0.1


def test_a_model_in_training_drops_nothing_out(
    trainer: LineGRPOTrainer, rows: list[torch.Tensor]
) -> None:
    """GPT-2 would drop one number in ten, in layers of their own."""
    model: Any = trainer.model
    model.train()
    dropping = score(trainer, rows)
    model.eval()
    assert all(map(torch.equal, dropping, score(trainer, rows)))
