"""A task in TRL's trainers: rollouts are ours, and credit is the line's or the outcome's."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import repl_rl as rr
from own_processes import children
from repl_rl.trl import ReplSpec
from repl_rl.update.trainer import sections_by
from scripted_kind import ScriptedKind
from tiny_model import save_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.kernel, pytest.mark.train]

SETTINGS = [
    "sampling.engine=scripted_kind:ScriptedKind",
    "sampling.max_in_flight=1",
    "sandbox.standby=1",
]
# Four siblings, one after another: solved at once, solved after an error, wrong, wrong.
LINES = [
    " submit_final_answer(2)\n",
    " 1/0\n",
    " submit_final_answer(2)\n",
    " submit_final_answer(3)\n",
    " submit_final_answer(4)\n",
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # its warning that seams may move


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def task(tmp_path: Path) -> str:
    """A file with one problem to train on, and one that is held out."""
    rows = [
        {"problem": "What is 1 + 1?", "answer": "2", "split": "train"},
        {"problem": "What is 1 + 2?", "answer": "3", "split": "held_out"},
    ]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def arguments(folder: Path, **changes: Any) -> GRPOConfig:
    values: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 160,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "no",
    }
    return GRPOConfig(**(values | changes))


def trained(
    spec: ReplSpec, kind: Any, model: str, args: GRPOConfig, *, resume: bool = False, **given: Any
) -> tuple[Any, Any]:
    """(the trainer after its training, the batch that it made of its last rollout)."""
    batches: list[Any] = []

    class Watched(kind):  # type: ignore[misc]  # a base that is given
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batches.append(super()._generate_and_score_completions(inputs))
            return batches[-1]

    trainer = Watched(
        model=model,
        args=args,
        train_dataset=spec.train_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
        **given,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer, batches[-1]


def test_the_trainer_of_a_spec_has_the_advantages_of_lines(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    before = children()
    spec = ReplSpec(task, overrides=SETTINGS)
    trainer, batch = trained(spec, spec.trainer_class, model, arguments(tmp_path))
    assert [item.reward.outcome_reward for item in trainer.scored] == [1.0, 1.0, 0.0, 0.0]
    assert [item.reward.line_rewards[0] for item in trainer.scored] == [0.0, -0.1, 0.0, 0.0]
    rows = rr.advantages(trainer.scored, credit="line_local")
    for row, padded, mask in zip(rows, batch["advantages"], batch["tool_mask"], strict=True):
        assert padded[: len(row)].tolist() == pytest.approx(row)
        assert not padded[: len(row)][mask[: len(row)] == 0].any()
    # The line that raised earns less than the one that solved it, in one trajectory.
    first, last = rows[1][0], rows[1][-1]
    assert first < last
    assert children() <= before


def test_a_stock_trainer_has_the_outcome_alone(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    before = children()
    spec = ReplSpec(task, overrides=SETTINGS)
    _, batch = trained(spec, GRPOTrainer, model, arguments(tmp_path))
    # Outcomes 1, 1, 0, 0: their mean is 1 / 2, and their deviation sqrt(1 / 3).
    one = 0.5 / (1 / 3**0.5 + 1e-4)
    assert batch["advantages"].tolist() == pytest.approx([one, one, -one, -one])
    assert children() <= before


def test_a_stock_trainer_leaves_out_what_nobody_could_grade(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ungraded(ReplSpec):
        def roll_out(self, *given: Any) -> list[rr.Scored]:
            *others, last = super().roll_out(*given)
            return [*others, replace(last, reward=replace(last.reward, outcome_reward=None))]

    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    _, batch = trained(Ungraded(task, overrides=SETTINGS), GRPOTrainer, model, arguments(tmp_path))
    # Outcomes 1, 1, 0 and none: their mean is 2 / 3, and their deviation sqrt(1 / 3).
    scale = 1 / 3**0.5 + 1e-4
    expected = [1 / 3 / scale, 1 / 3 / scale, -2 / 3 / scale, 0.0]
    assert batch["advantages"].tolist() == pytest.approx(expected)


def test_both_trainers_take_the_same_arguments_by_position(
    model: str, task: str, tmp_path: Path
) -> None:
    spec, args = ReplSpec(task, overrides=SETTINGS), arguments(tmp_path)
    assert spec.trainer_class is spec.trainer_class
    for kind in (spec.trainer_class, GRPOTrainer):
        trainer = kind(
            model, spec.reward_funcs, args, spec.train_dataset, rollout_func=spec.rollout_func
        )
        assert (trainer.args, trainer.train_dataset) == (args, spec.train_dataset)
    with pytest.raises(rr.ConfigError, match="needs its spec's rollout_func, reward_funcs"):
        spec.trainer_class(model, [len], args, spec.train_dataset)
    with pytest.raises(TypeError, match="missing a required argument: 'model'"):
        spec.trainer_class(args=args)


def test_what_was_injected_is_masked_and_what_was_sampled_is_not(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    spec = ReplSpec(task, overrides=SETTINGS, output=tmp_path / "run")
    _, batch = trained(spec, GRPOTrainer, model, arguments(tmp_path))
    stored = list(rr.load_run(tmp_path / "run"))
    assert len(stored) == 4
    for item, ids, mask, logprobs in zip(
        stored,
        batch["completion_ids"],
        batch["tool_mask"],
        batch["sampling_per_token_logps"],
        strict=True,
    ):
        size = len(item.trajectory.completion_ids)
        assert tuple(ids[:size].tolist()) == item.trajectory.completion_ids
        assert tuple(mask[:size].bool().tolist()) == item.trajectory.loss_mask
        assert logprobs[:size].tolist() == pytest.approx(item.trajectory.logprobs)
    assert sum(stored[1].trajectory.loss_mask) < len(stored[1].trajectory.loss_mask)


def test_identical_siblings_move_nothing(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedKind, "lines", [" submit_final_answer(3)\n"] * 4)
    spec = ReplSpec(task, overrides=SETTINGS)
    trainer, batch = trained(spec, spec.trainer_class, model, arguments(tmp_path, weight_decay=0.0))
    assert not batch["advantages"].any()
    kept = weights_of(model)
    assert all(torch.equal(one, kept[name]) for name, one in trainer.model.state_dict().items())


def weights_of(path: str) -> dict[str, torch.Tensor]:
    found: Any = AutoModelForCausalLM.from_pretrained(path)
    weights: dict[str, torch.Tensor] = found.state_dict()
    return weights


def test_the_same_seed_gives_the_same_rollouts(model: str, task: str, tmp_path: Path) -> None:
    """By the engine that samples from the trainer's own model."""
    settings = ["sandbox.standby=1", "sampling.max_lines=2", "sampling.max_line_tokens=12"]
    batches = [
        trained(
            ReplSpec(task, seed=seed, overrides=settings), GRPOTrainer, model, arguments(tmp_path)
        )[1]
        for seed in (1, 1, 2)
    ]
    one, again, other = (batch["completion_ids"].tolist() for batch in batches)
    assert one == again != other


SHORT = ["sandbox.standby=1", "sampling.max_lines=2", "sampling.max_line_tokens=12"]


def test_ids_that_are_never_sampled_have_no_probability_in_the_update(
    task: str, tmp_path: Path
) -> None:
    model = str(save_tiny_model(tmp_path / "tiny", runs_on=True))
    for run_on in ("forbid", "allow"):
        rule = f"sampling.run_on={run_on}"
        spec = ReplSpec(task, overrides=[*SHORT, rule, "grpo.importance=line"])
        trainer, _ = trained(spec, spec.trainer_class, model, arguments(tmp_path))
        logs = trainer.state.log_history[0]
        assert logs["importance/largest_gap"] < 1e-4
        assert logs["importance/ratio_max"] == pytest.approx(1.0, abs=1e-4)
    lines = [line.source for item in trainer.scored for line in item.trajectory.lines]
    assert any("\n" in line[:-1] for line in lines)  # what is allowed is sampled


def test_a_stock_trainer_forbids_no_ids(model: str, task: str, tmp_path: Path) -> None:
    spec = ReplSpec(task, overrides=[*SHORT, "sampling.run_on=forbid"])
    with pytest.raises(rr.ConfigError, match=r"expected spec\.trainer_class, or 'allow'"):
        trained(spec, GRPOTrainer, model, arguments(tmp_path))


class Paid(ReplSpec):
    """Every second trajectory has solved its problem: siblings differ, whatever was sampled."""

    def roll_out(self, *given: Any) -> list[rr.Scored]:
        return [
            replace(item, reward=replace(item.reward, outcome_reward=float(row % 2)))
            for row, item in enumerate(super().roll_out(*given))
        ]


def test_an_adapter_is_trained_and_its_rollouts_are_its_own(
    model: str, task: str, tmp_path: Path
) -> None:
    """Two steps: the second samples by weights to which the adapter has been added."""
    spec = Paid(task, overrides=[*SHORT, "grpo.importance=line"])
    adapter = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    args = arguments(tmp_path, max_steps=2, learning_rate=0.1, logging_steps=1)
    trainer, _ = trained(spec, spec.trainer_class, model, args, peft_config=adapter)
    kept = weights_of(model)
    for name, one in trainer.model.get_base_model().state_dict().items():
        if "lora_" not in name:
            assert torch.equal(one, kept[name.replace(".base_layer", "")])
    first, second = trainer.state.log_history[:2]
    assert first["grad_norm"] > 0
    assert second["importance/largest_gap"] < 1e-4


def test_a_training_that_goes_on_becomes_the_one_that_it_would_have_been(
    model: str, task: str, tmp_path: Path
) -> None:
    args = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    spec = Paid(task, overrides=SHORT)
    whole, _ = trained(spec, spec.trainer_class, model, args)
    shutil.rmtree(tmp_path / "out" / "checkpoint-2")
    spec = Paid(task, overrides=SHORT)
    again, _ = trained(spec, spec.trainer_class, model, args, resume=True)
    assert [one.trajectory.completion_ids for one in again.scored] == [
        one.trajectory.completion_ids for one in whole.scored
    ]
    expected, begun = whole.model.state_dict(), weights_of(model)
    assert not all(torch.equal(one, begun[name]) for name, one in expected.items())
    assert all(torch.equal(one, expected[name]) for name, one in again.model.state_dict().items())


def test_kernels_end_with_the_block_however_it_ends(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            assert children() - before
            raise ArithmeticError

    before = children()
    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    with pytest.raises(ArithmeticError), ReplSpec(task, overrides=SETTINGS) as spec:
        trained(spec, spec.trainer_class, model, arguments(tmp_path), callbacks=[Failing()])
    assert children() <= before


def test_an_evaluation_alone_has_kernels_of_the_block_and_leaves_no_trajectories(
    model: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children()
    monkeypatch.setattr(ScriptedKind, "lines", LINES)
    with ReplSpec(task, overrides=SETTINGS, output=tmp_path / "run") as spec:
        trainer = spec.trainer_class(
            model,
            args=arguments(tmp_path, per_device_eval_batch_size=4),
            train_dataset=spec.train_dataset,
            eval_dataset=spec.train_dataset,
            rollout_func=spec.rollout_func,
        )
        trainer.evaluate()
        assert trainer.state.log_history[-1]["eval_reward"] == 0.5  # outcomes 1, 1, 0, 0
        assert children() - before
    assert children() <= before
    assert list((tmp_path / "run" / "trajectories").iterdir()) == []


def test_problems_that_read_the_same_are_one_row(tmp_path: Path) -> None:
    rows = [{"problem": one, "answer": "2", "split": "train"} for one in ("1 + 1", "2", "1 + 1")]
    rows.append({"problem": "3", "answer": "3", "split": "held_out"})
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = ReplSpec(str(path))
    assert len(spec.train_dataset) == len(spec.chat_dataset) == 2


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("grpo.learning_rate=1e-5", "is no setting of a ReplSpec"),
        ("grpo.credit=tree", "grows groups that only `repl-rl train` rolls out"),
        ("sampling.temperature=0.7", "is no setting of a ReplSpec"),
        ("no.such=1", "is no setting of a ReplSpec"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(override: str, expected: str) -> None:
    with pytest.raises(rr.ConfigError, match=expected):
        ReplSpec("sympy-proofs", overrides=[override])


def test_arguments_that_change_what_rollouts_mean_are_refused(
    model: str, task: str, tmp_path: Path
) -> None:
    spec = ReplSpec(task, overrides=SETTINGS)
    for kind in (spec.trainer_class, GRPOTrainer):
        for name, value in (("mask_truncated_completions", True), ("top_p", 0.9)):
            with pytest.raises(rr.ConfigError, match=name):
                trained(spec, kind, model, arguments(tmp_path, **{name: value}))


@pytest.mark.parametrize(
    ("weights", "is_half", "expected"),
    [
        (torch.float32, False, "float32"),
        (torch.float32, True, "mixed"),
        (torch.bfloat16, True, "bfloat16"),
        (torch.bfloat16, False, "bfloat16"),  # no autocast, and products of what is held
    ],
)
def test_what_is_computed_in_is_read_off_weights_and_arguments(
    tmp_path: Path, weights: torch.dtype, is_half: bool, expected: str
) -> None:
    args = arguments(tmp_path, bf16=is_half, temperature=0.7, scale_rewards="none")
    found = sections_by(args, rr.resolve(), weights=weights)
    sampling, grpo = found["sampling"], found["grpo"]
    assert grpo.dtype == expected
    assert (sampling.temperature, sampling.max_tokens) == (0.7, 160)
    assert grpo.scale == "none"


def test_a_prompt_from_elsewhere_is_named(model: str, task: str, tmp_path: Path) -> None:
    spec = ReplSpec(task, overrides=SETTINGS)
    trainer = GRPOTrainer(
        model=model,
        args=arguments(tmp_path),
        train_dataset=ReplSpec("sympy-proofs", num_problems=1).train_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    )
    with pytest.raises(rr.ConfigError, match=r"is no prompt of spec\.train_dataset"):
        trainer.train()


def test_a_run_is_not_written_over(task: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(rr.ConfigError, match=r"already holds a run; give another output, even to"):
        ReplSpec(task, output=tmp_path)
