"""Rows that share a beginning forward it once, and nothing that is learned changes."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MptConfig,
    Qwen3Config,
)

from repl_rl.records import OutcomeKind, Scored, StopReason, Trajectory
from repl_rl.update import token_tree as tree_attention
from repl_rl.update.forward import takes_trees
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.token_tree import IGNORED, Branches, grow
from trainer_kit import Catch, Step, difference, largest, model_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from launches import Form, Launches, Op, host_unseen, of_update

pytestmark = pytest.mark.train

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK = OutcomeKind.OK_OUTPUT


@pytest.fixture(params=["branch by branch", "at once"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both forms of the attention: CPUs take the first by themselves, GPUs the other."""
    if request.param == "at once":
        monkeypatch.setattr(tree_attention, "AT_ONCE", {"cpu"})
    return str(request.param)


# The tree


def test_a_tree_has_each_beginning_once() -> None:
    """1 2 3 is the prompt of the first two rows; 7 follows it in both, and 9 follows no label."""
    ids = torch.tensor([[0, 1, 2, 3, 7, 5], [0, 1, 2, 3, 7, 9], [4, 1, 2, 3, 6, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
    labels = torch.full_like(ids, IGNORED)
    labels[0, 4:], labels[1, 4], labels[2, 4] = ids[0, 4:], 7, 6
    tree = grow(ids, mask, labels)
    assert tree.ids.tolist() == [1, 2, 3, 7, 4, 1, 2, 3]
    assert tree.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert tree.labels.ids.tolist() == [7, 5, 7, 6]
    assert tree.labels.before.tolist() == [2, 3, 2, 7]
    spread = tree.labels.spread(torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 6))
    assert spread[:, 4:].tolist() == [[1.0, 2.0], [3.0, 0.0], [4.0, 0.0]]


def test_branches_leave_a_row_where_they_differ() -> None:
    """Rows 1 2 3 4, 1 2 5 and 1 6, up to the token before the last label."""
    ids = torch.tensor([[1, 2, 3, 4, 9], [1, 2, 5, 9, 0], [1, 6, 9, 0, 0]])
    mask = (ids != 0).long()
    tree = grow(ids, mask, ids.masked_fill(ids != 9, IGNORED))
    assert tree.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert tree.branches == Branches(
        sizes=[4, 1, 1], piece_sizes=[1, 1, 2, 1, 1], pieces=((0, 1, 2), (0, 1, 3), (0, 4))
    )


def test_rows_without_a_label_leave_one_token() -> None:
    ids = torch.tensor([[0, 3, 4], [5, 6, 7]])
    tree = grow(ids, (ids != 0).long(), torch.full_like(ids, IGNORED))
    assert (tree.ids.tolist(), tree.labels.ids.tolist()) == ([3], [])


def test_packed_branches_have_the_keys_of_their_paths() -> None:
    """1 2 3 4, 1 2 5 and 1 6: the second branch's own token sees tokens 0, 1 and 4."""
    branches = Branches.of([[(0, 4)], [(0, 2), (4, 5)], [(0, 1), (5, 6)]])
    packed = branches.packed(torch.device("cpu"))
    assert packed.keys.tolist() == [0, 1, 2, 3, 0, 1, 4, 0, 5]
    assert packed.query_ends.tolist() == [0, 4, 5, 6]
    assert packed.key_ends.tolist() == [0, 4, 7, 9]
    assert (packed.most_queries, packed.most_keys) == (4, 4)
    sees = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4], [0, 5]]
    mask = branches.dense_mask(2, torch.device("cpu"))
    assert [row.nonzero()[:, 0].tolist() for row in mask] == [*sees, *sees]


def test_packed_branches_give_what_a_dense_mask_gives() -> None:
    """Each sequence of the packed form by itself, causal from its end, as flash attention does."""
    torch.manual_seed(0)
    branches = Branches.of([[(0, 7)], [(0, 3), (7, 12)], [(0, 3), (7, 9), (12, 13)]])
    query, key, value = torch.randn(3, 1, 2, 13, 8)
    packed, found = branches.packed(query.device), []
    ends = zip(packed.query_ends.tolist(), packed.key_ends.tolist(), strict=True)
    (start, first), *rest = ends
    for stop, last in rest:
        at = packed.keys[first:last]
        seen = torch.ones(stop - start, last - first, dtype=torch.bool)
        seen = seen.tril(last - first - (stop - start))
        parts = query[:, :, start:stop], key[:, :, at], value[:, :, at]
        found.append(scaled_dot_product_attention(*parts, attn_mask=seen))
        start, first = stop, last
    mask = branches.dense_mask(1, query.device)
    dense = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert (torch.cat(found, dim=2) - dense).abs().max().item() < 1e-6


@pytest.mark.parametrize(
    "make",
    [
        lambda n: LlamaConfig(**{**SMALL, "num_hidden_layers": n}),
        lambda n: Qwen3Config(**{**SMALL, "num_hidden_layers": n}, head_dim=8),
        lambda n: Gemma3TextConfig(
            **{**SMALL, "num_hidden_layers": n}, head_dim=8, layer_types=["full_attention"] * n
        ),
        lambda n: GPT2Config(vocab_size=64, n_embd=32, n_layer=n, n_head=4),
    ],
    ids=["llama", "qwen3", "gemma3", "gpt2"],
)
def test_at_once_a_layer_takes_no_more_ops_however_many_branches(
    make: Callable[[int], Any],
) -> None:
    """A tenth more than padded rows, which compute what rows share for each of them."""

    def a_layer(form: Form, branches: int) -> int:
        one, two = (of_update(make, n, form=form, branches=branches) for n in (1, 2))
        return two - one

    assert a_layer("at once", 2) == a_layer("at once", 8)
    assert a_layer("at once", 8) <= 1.1 * a_layer("rows", 8)


def test_the_attention_of_a_gpu_takes_a_scale_and_a_window() -> None:
    """Causal from the ends of a branch, as its last query sees all of its keys: torch 2.10 has
    neither."""
    assert {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()


@pytest.mark.parametrize("takes_trees", [True, False], ids=["tree", "rows"])
@pytest.mark.parametrize("is_dropped", [False, True], ids=["labels", "no label"])
def test_a_micro_batch_asks_its_device_for_nothing(
    step: Step,
    family: list[Scored],
    takes_trees: bool,
    is_dropped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From forward to backward, head included, a GPU is never waited for: which tokens have a label
    is found on the host, of one copy of the labels."""
    monkeypatch.setattr(tree_attention, "AT_ONCE", {"cpu"})
    seen: list[Op] = []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **kwargs: Any) -> Any:
            with host_unseen(), Launches() as launched:
                out = work(*args, **kwargs)
            seen.extend(launched.ops)
            return out

        return done

    def change(trainer: Any) -> None:
        trainer.takes_trees = takes_trees
        score = trainer._get_per_token_logps_and_entropies
        trainer._get_per_token_logps_and_entropies = watched(score)
        trainer.accelerator.backward = watched(trainer.accelerator.backward)

    if is_dropped:
        reason = StopReason.MAX_TOKENS
        family = [
            dataclasses.replace(
                one, trajectory=dataclasses.replace(one.trajectory, stop_reason=reason)
            )
            for one in family
        ]
    step(
        family,
        change=change,
        micro_batch_size=4,
        trl={"mask_truncated_completions": is_dropped},
        **GROUPS,
    )
    names = {op.name.split(".")[1] for op in seen}
    assert {"mm", "embedding_dense_backward"} <= names
    # Of padded rows transformers asks whether there is padding at all.
    asks = {"_local_scalar_dense"} if takes_trees else set()
    assert names.isdisjoint({"nonzero", "masked_scatter", "masked_select", *asks})
    indexed = [op for op in seen if op.name == "aten.index.Tensor"]
    assert indexed
    assert not [op for op in indexed if torch.bool in op.dtypes[1:]]


# Who takes one

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def model_for(config: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, **options)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL),
        Qwen3Config(**SMALL, head_dim=8),
        MistralConfig(**SMALL, sliding_window=None),
        GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4),
    ],
    ids=lambda config: config.model_type,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("form")
def test_models_whose_layers_see_all_take_trees(config: Any, dtype: torch.dtype) -> None:
    assert takes_trees(model_for(config).to(dtype))


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**SMALL, sliding_window=4096),
        Qwen3Config(
            **SMALL, use_sliding_window=True, sliding_window=4096, max_window_layers=1, head_dim=8
        ),
        MptConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=4),
    ],
    ids=["window in all layers", "window in one layer", "distances in a bias"],
)
def test_models_with_another_attention_take_none(config: Any) -> None:
    assert not takes_trees(model_for(config))


def test_a_model_that_does_more_with_its_mask_takes_none() -> None:
    """By its config it could: here it is what it does that tells."""
    model = model_for(LlamaConfig(**SMALL))
    assert takes_trees(model)
    model.model.layers[0].self_attn.register_forward_hook(
        lambda _module, _inputs, out: (out[0].flip(1), *out[1:])
    )
    assert not takes_trees(model)


def test_rounding_costs_a_model_no_trees() -> None:
    """A trained model has entries of 30 spreads. Rounding moves them by a thousandth of one."""
    model = model_for(LlamaConfig(**SMALL))
    torch.manual_seed(0)
    model.model.norm.register_forward_hook(
        lambda _module, _inputs, out: out + 2e-3 * out.std() * (2 * torch.rand_like(out) - 1)
    )
    assert takes_trees(model)


def test_a_model_with_another_implementation_takes_none() -> None:
    assert not takes_trees(model_for(LlamaConfig(**SMALL), attn_implementation="eager"))


# What is learned


@pytest.fixture
def family(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Two groups of two: prompts share a beginning, siblings their first line, rows mix."""
    lines = [
        [(" a+1\n", OK, "2\n>>>"), (" f(2)\n", OK, "[3]\n>>>")],
        [(" a+1\n", OK, "2\n>>>"), (" g(2)\n", OK, "4\n>>>")],
        [(" q\n", OK, "1\n>>>")],
        [(" longer line\n", OK, "a long answer\n>>>")],
    ]
    outcomes = [1.0, 0.0, 0.2, 0.9]
    scored = []
    for i, (parts, outcome) in enumerate(zip(lines, outcomes, strict=True)):
        prompt = "# one\n>>>" if i < 2 else "# another\n>>>"
        trajectory = make_trajectory(parts, prompt=prompt, group_index=i // 2, sibling_index=i % 2)
        # Near what the model has them at: lines weigh about 1.
        logprobs = tuple(-5.5 * is_sampled for is_sampled in trajectory.loss_mask)
        trajectory = dataclasses.replace(trajectory, logprobs=logprobs)
        scored.append(make_scored(trajectory, outcome, [-0.1 * k for k in range(len(parts))]))
    return scored


STOPS = (StopReason.EOS, StopReason.EOS, StopReason.MAX_TOKENS, StopReason.MAX_TOKENS)
GROUPS = {"problems_per_step": 2, "group_size": 2}


def count_tokens(trainer: LineGRPOTrainer, seen: list[int]) -> None:
    """Count the tokens that go through the layers of each forward."""

    def count(_module: Any, inputs: tuple[torch.Tensor, ...], _out: Any) -> None:
        seen.append(inputs[0].shape[:2].numel())

    model_of(trainer).model.layers[0].register_forward_hook(count)


def both(step: Step, scored: Sequence[Scored], **grpo: Any) -> tuple[Catch, Catch]:
    """A step with trees, and one with rows as TRL has them."""

    def plain(trainer: LineGRPOTrainer) -> None:
        trainer.length_parts = 1

    return step(scored, **grpo), step(scored, change=plain, **grpo)


@pytest.mark.parametrize(
    "grpo",
    [
        {"loss_type": "dapo", "kl_beta": 0.1},
        {"loss_type": "vespo", "micro_batch_size": 2},
        {"loss_type": "dapo", "gradient_checkpointing": True, "importance": "line"},
        {"loss_type": "grpo", "trl": {"entropy_coef": 0.1}},
    ],
    ids=["with a reference", "in micro-batches", "with checkpoints", "with an entropy bonus"],
)
@pytest.mark.usefixtures("form")
def test_trees_leave_loss_and_gradients_as_they_are(
    step: Step, family: list[Scored], grpo: dict[str, Any]
) -> None:
    tree, plain = both(step, family, **{**GROUPS, "micro_batch_size": 4, **grpo})
    assert tree.logs["loss"] == pytest.approx(plain.logs["loss"], abs=1e-6)
    assert tree.logs["entropy"] == pytest.approx(plain.logs["entropy"], abs=1e-5)
    assert difference(tree.gradients, plain.gradients) < 1e-5 * max(1.0, largest(plain.gradients))
    assert largest(plain.gradients) > 1e-3


def test_what_rows_begin_with_goes_through_the_layers_once(
    step: Step, family: list[Scored]
) -> None:
    """Up to the token before the last sampled one of each row.

    `# one\\n>>>` is 9 tokens, ` a+1\\n2\\n>>>` 10, ` f(2)` 5 and `g(2)` behind the same space 4;
    `another\\n>>>` is 11 behind `# `, ` q` 2, and `longer line` 11 behind the same space.
    """
    seen: list[int] = []
    step(family, change=lambda trainer: count_tokens(trainer, seen), micro_batch_size=4, **GROUPS)
    assert seen == [9 + 10 + 5 + 4 + 11 + 2 + 11]


@pytest.mark.parametrize(("loss_type", "meet"), [("dapo", True), ("bnpo", False)])
def test_siblings_meet_in_a_micro_batch_where_it_may_be_any(
    step: Step, family: list[Scored], loss_type: str, meet: bool
) -> None:
    """TRL shuffles rows. Under `bnpo` the loss depends on who is in a micro-batch."""
    seen: list[int] = []
    step(
        [family[i] for i in (0, 2, 1, 3)],
        change=lambda trainer: count_tokens(trainer, seen),
        micro_batch_size=2,
        loss_type=loss_type,
        **GROUPS,
    )
    assert (sorted(seen) == [13 + 2 + 11, 9 + 10 + 5 + 4]) == meet


def test_rows_that_are_out_of_the_loss_are_not_forwarded(step: Step, family: list[Scored]) -> None:
    """The last group met a limit; ` a+1`, its answer and what two siblings sampled are left."""
    stopped = [
        dataclasses.replace(
            item, trajectory=dataclasses.replace(item.trajectory, stop_reason=reason)
        )
        for item, reason in zip(family, STOPS, strict=True)
    ]
    seen: list[int] = []
    step(
        stopped,
        change=lambda trainer: count_tokens(trainer, seen),
        micro_batch_size=4,
        trl={"mask_truncated_completions": True},
        **GROUPS,
    )
    assert seen == [9 + 10 + 5 + 4]
