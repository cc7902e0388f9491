"""What the update learns from, checked on the trainer class that trains: one real step each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
)
from trl.trainer.grpo_trainer import GRPOTrainer

from repl_rl.config import Config, GRPOConfig, SamplingConfig
from repl_rl.grpo import LineGRPOTrainer, largest_divisor, make_trainer, outcome_reward
from repl_rl.types import OutcomeKind, Scored, Trajectory

pytestmark = pytest.mark.train

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
Gradients = dict[str, torch.Tensor]
OK = OutcomeKind.OK_OUTPUT
EOS = 256
IMPOSSIBLE = ord("~")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Bytes as ids, and an end of text."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate(symbols)} | {"<|end|>": EOS}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A random Qwen3 of two layers: TRL loads its reference policy from where a model came from."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=257,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=8,
            max_position_embeddings=128,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=EOS,
            pad_token_id=EOS,
        )
    )
    path: Path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def group(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Four siblings of different lengths, errors and outcomes; each ends on injected text."""
    error = OutcomeKind.NAME_ERROR
    parts = [
        [(" a+1\n", OK, "2\n>>>"), (" f(2)\n", OK, "[3]\n>>>")],
        [(" q\n", error, "NameError\n>>>"), (" a\n", OK, "1\n>>>"), (" b\n", OK, ">>>")],
        [(" longer line\n", OK, "a long answer\n>>>")],
        [(" x\n", error, "E\n>>>")],
    ]
    rewards = [(1.0, (0.0, 0.0)), (0.0, (-0.1, 0.0, 0.0)), (0.0, (0.0,)), (-0.6, (-0.1,))]
    return [
        make_scored(make_trajectory(lines, sibling_index=i), outcome, line_rewards)
        for i, (lines, (outcome, line_rewards)) in enumerate(zip(parts, rewards, strict=True))
    ]


class Catch(TrainerCallback):
    """Keeps the gradients that the optimiser is about to use, and what was logged."""

    def __init__(self) -> None:
        self.gradients: Gradients = {}
        self.logs: dict[str, float] = {}

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        self.gradients = {
            name: parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        self.logs = {**(logs or {}), **self.logs}


def config_of(size: int, **grpo: Any) -> Config:
    """One step on one group, nothing clipped: the gradients are the loss's own."""
    values: dict[str, Any] = {
        "steps": 1,
        "problems_per_step": 1,
        "group_size": size,
        "micro_batch_size": size,
        "max_grad_norm": 1e9,
        "gradient_checkpointing": False,
    }
    return Config(
        model="m",
        sampling=SamplingConfig(max_tokens=64, device="cpu"),
        grpo=GRPOConfig(**(values | grpo)),
    )


Step = Callable[..., Catch]


@pytest.fixture
def step(folder: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """`step(scored, **grpo)`: what one real update caught; `change` may alter its trainer first."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def run(
        scored: Sequence[Scored],
        *,
        change: Callable[[LineGRPOTrainer], None] = lambda _: None,
        **grpo: Any,
    ) -> Catch:
        catch = Catch()
        trainer = make_trainer(
            model=Qwen3ForCausalLM.from_pretrained(folder),
            tokenizer=tokenizer,
            collect=lambda numbers, _: list(scored),
            config=config_of(len(scored), **grpo),
            folder=tmp_path,
            callbacks=[catch],
        )
        change(trainer)
        trainer.train()
        return catch

    return run


def largest(gradients: Gradients) -> float:
    return max(gradient.abs().max().item() for gradient in gradients.values())


def difference(one: Gradients, other: Gradients) -> float:
    assert one.keys() == other.keys()
    assert one
    return max((one[name] - other[name]).abs().max().item() for name in one)


def rewrite_injected_end(scored: Scored) -> Scored:
    """The same trajectory with other ids after its last line."""
    trajectory = scored.trajectory
    end = trajectory.lines[-1].stop
    ids = trajectory.completion_ids[:end] + (ord("Z"),) * (len(trajectory.completion_ids) - end)
    changed = dataclasses.replace(trajectory, completion_ids=ids)
    return dataclasses.replace(scored, trajectory=changed)


def drop_env_mask(trainer: LineGRPOTrainer) -> None:
    """Say of every token that it was sampled."""
    collect = trainer.collect

    def maskless(prompts: Sequence[str]) -> dict[str, Any]:
        rows = collect(prompts)
        return {**rows, "env_mask": [[1] * len(mask) for mask in rows["env_mask"]]}

    trainer.collect = maskless


# Who is trained


def test_injected_tokens_get_exactly_no_gradient_and_sampled_ones_get_some(
    step: Step, group: list[Scored]
) -> None:
    seen: list[torch.Tensor] = []

    def watch(trainer: LineGRPOTrainer) -> None:
        score = trainer._get_per_token_logps_and_entropies

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = score(*args, **kwargs)
            if result[0].requires_grad:
                result[0].retain_grad()
                seen.append(result[0])
            return result

        trainer._get_per_token_logps_and_entropies = watched

    step(group, change=watch)
    (logprobs,) = seen
    assert logprobs.grad is not None
    width = logprobs.shape[1]
    sampled = torch.tensor(
        [
            [*item.trajectory.loss_mask, *[False] * (width - len(item.trajectory.loss_mask))]
            for item in group
        ]
    )
    # TRL shuffles the rows of a step: match them by their pattern of zeros.
    patterns = {tuple(row.tolist()) for row in logprobs.grad != 0}
    assert patterns == {tuple(row.tolist()) for row in sampled}


def test_the_ids_of_injected_tokens_at_the_end_do_not_matter(
    step: Step, group: list[Scored]
) -> None:
    rewritten = [rewrite_injected_end(item) for item in group]
    assert difference(step(group).gradients, step(rewritten).gradients) < 1e-7


def test_without_the_mask_the_update_would_be_another(step: Step, group: list[Scored]) -> None:
    """The check above can fail: the mask is what keeps injected tokens out."""
    plain = step(group).gradients
    assert difference(plain, step(group, change=drop_env_mask).gradients) > 1e-3 * largest(plain)


def test_without_the_mask_the_ids_at_the_end_would_matter(step: Step, group: list[Scored]) -> None:
    """With a KL, unmasked injected tokens are pulled to the reference: their ids count."""

    def both(trainer: LineGRPOTrainer) -> None:
        drop_env_mask(trainer)
        with torch.no_grad():
            trainer.model.lm_head.weight.mul_(1.5)

    rewritten = [rewrite_injected_end(item) for item in group]
    one, other = (step(scored, kl_beta=1.0, change=both) for scored in (group, rewritten))
    assert difference(one.gradients, other.gradients) > 1e-4


# What is learned


def test_equal_returns_give_no_gradient(step: Step, group: list[Scored]) -> None:
    equal = [
        dataclasses.replace(
            item,
            reward=dataclasses.replace(
                item.reward,
                outcome_reward=0.8,
                line_rewards=(-0.1, *[0.0] * (len(item.trajectory.lines) - 1)),
            ),
        )
        for item in group
    ]
    assert largest(step(equal).gradients) == 0.0


def test_unscorable_trajectories_alone_give_no_gradient(step: Step, group: list[Scored]) -> None:
    unscorable = [
        dataclasses.replace(item, reward=dataclasses.replace(item.reward, outcome_reward=None))
        for item in group
    ]
    assert largest(step(unscorable).gradients) == 0.0


def test_the_credit_of_lines_changes_the_update(step: Step, group: list[Scored]) -> None:
    plain = step(group, line_credit_weight=0.0).gradients
    assert difference(plain, step(group, line_credit_weight=0.5).gradients) > 1e-4


@pytest.mark.parametrize(
    ("loss_type", "credit"),
    [
        ("dapo", {"credit": "outcome"}),
        ("dapo", {"line_credit_weight": 0.0}),
        ("grpo", {"line_credit_weight": 0.0}),
        ("dr_grpo", {"line_credit_weight": 0.0}),
        ("bnpo", {"line_credit_weight": 0.0}),
    ],
)
def test_without_line_credit_it_is_stock_trl(
    step: Step,
    group: list[Scored],
    folder: Path,
    tokenizer: Any,
    loss_type: str,
    credit: dict[str, Any],
) -> None:
    made: list[LineGRPOTrainer] = []
    ours = step(group, loss_type=loss_type, change=made.append, **credit)
    stock = Catch()
    rows = made[0].collect(["0"] * len(group))
    GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(folder),
        args=made[0].args,
        reward_funcs=[outcome_reward],
        rollout_func=lambda prompts, _: rows,
        processing_class=tokenizer,
        train_dataset=made[0].train_dataset,
        callbacks=[stock],
    ).train()
    assert ours.logs["loss"] == pytest.approx(stock.logs["loss"], abs=1e-6)
    assert difference(ours.gradients, stock.gradients) < 1e-6
    assert largest(stock.gradients) > 1e-3


def test_no_forward_pass_sees_padding_where_rows_are_few(step: Step, group: list[Scored]) -> None:
    """As many parts as rows: what is forwarded is what the trajectories hold, and no token more."""
    widths: list[int] = []

    def watch(trainer: LineGRPOTrainer) -> None:
        trainer.model.base_model.register_forward_pre_hook(
            lambda _module, _args, kwargs: widths.append(kwargs["input_ids"].numel()),
            with_kwargs=True,
        )

    step(group, change=watch)
    trajectories = [item.trajectory for item in group]
    assert widths == sorted(len(t.prompt_ids) + len(t.completion_ids) for t in trajectories)


@pytest.mark.parametrize("micro_batch_size", [1, 2])
def test_the_update_does_not_depend_on_the_micro_batch(
    step: Step, group: list[Scored], micro_batch_size: int
) -> None:
    whole = step(group).gradients
    parts = step(group, micro_batch_size=micro_batch_size).gradients
    assert difference(whole, parts) < 1e-6 * max(1.0, largest(whole))


def test_the_sampling_policy_is_the_policy_that_is_updated(step: Step, group: list[Scored]) -> None:
    """Nothing is clipped: the importance ratio is exactly 1."""
    logs = step(group, micro_batch_size=1).logs
    assert logs["clip_ratio/region_mean"] == 0.0


# The reference


@pytest.fixture
def pair(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Two short siblings; the first is answered by `~`, which nothing else holds."""
    parts = [[("a\n", OK, "~>"), ("b\n", OK, None)], [("c\n", OK, "d>"), ("e\n", OK, None)]]
    return [
        make_scored(make_trajectory(lines, prompt=">", sibling_index=i), float(i))
        for i, lines in enumerate(parts)
    ]


def make_impossible(trainer: LineGRPOTrainer, scored: Sequence[Scored]) -> None:
    """Give `~` the logit -300 where it was injected, and 0 everywhere else."""
    hidden, logits = [], []
    for item in scored:
        trajectory = item.trajectory
        ids = trajectory.prompt_ids + trajectory.completion_ids
        with torch.no_grad():
            hidden.append(trainer.model.model(torch.tensor([ids])).last_hidden_state[0, :-1])
        logits.extend(-300.0 if token == IMPOSSIBLE else 0.0 for token in ids[1:])
    solved = torch.linalg.lstsq(torch.cat(hidden), torch.tensor(logits)[:, None], driver="gelsd")
    with torch.no_grad():
        trainer.model.lm_head.weight[IMPOSSIBLE] = solved.solution[:, 0]


def test_an_injected_token_that_is_next_to_impossible_leaves_the_loss_finite(
    step: Step, pair: list[Scored]
) -> None:
    caught = step(pair, kl_beta=0.1, change=lambda trainer: make_impossible(trainer, pair))
    assert math.isfinite(caught.logs["loss"])
    assert math.isfinite(caught.logs["kl"])
    assert math.isfinite(largest(caught.gradients))


def test_without_the_stand_in_that_token_would_break_the_loss(
    step: Step, pair: list[Scored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail: the KL of such a token is infinite, and inf * 0 is no number."""
    monkeypatch.setattr("repl_rl.grpo._MASKED_REFERENCE", 0.0)
    caught = step(pair, kl_beta=0.1, change=lambda trainer: make_impossible(trainer, pair))
    assert caught.logs["kl"] is None  # transformers logs a number that is none as None


@pytest.mark.parametrize(
    ("number", "at_most", "expected"), [(96, 40, 32), (8, 8, 8), (7, 3, 1), (12, 100, 12)]
)
def test_the_micro_batch_divides_the_batch(number: int, at_most: int, expected: int) -> None:
    assert largest_divisor(number, at_most=at_most) == expected
