"""Laws of `[trl]`: what is passed on works, and what TRL would refuse is refused in one line."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from transformers import trainer_optimizer
from trl.trainer.grpo_config import GRPOConfig as TRLConfig

from repl_rl.config import Config
from repl_rl.config.foreign_words import _OF_LOSSES, _PASSED_ON, REFUSED, refusal
from repl_rl.errors import ConfigError
from repl_rl.models.precision import Precision
from repl_rl.records import Scored, StopReason
from repl_rl.update.grpo import LineGRPOTrainer
from repl_rl.update.trainer import check_trl_options
from trainer_kit import Catch, Step, difference, largest, model_of, random_qwen

pytestmark = pytest.mark.train

FIELDS = {field.name for field in dataclasses.fields(TRLConfig)}


def check(**options: Any) -> None:
    check_trl_options(Config(model="m", trl=options), precision=Precision(), device="cpu")


# What is refused


def test_what_is_said_of_options_is_said_of_options_that_trl_has() -> None:
    assert set(REFUSED) - FIELDS == {"warmup_ratio"}  # of older ones
    assert set(_PASSED_ON) <= FIELDS
    assert not any(refusal(name) for name in _PASSED_ON)
    assert all(any(field.startswith(begin) for field in FIELDS) for begin in _OF_LOSSES)


def test_what_the_trainer_sets_itself_cannot_be_given() -> None:
    """Each is set to a value that is not TRL's own default."""
    own = {"output_dir", "max_steps", "num_generations", "beta", "epsilon", "bf16", "seed"}
    own |= {"shuffle_dataset", "use_bias_correction_kl", "disable_dropout", "logging_steps"}
    own |= {"save_steps", "save_total_limit", "logging_nan_inf_filter", "report_to"}
    assert [name for name in own if refusal(name) is None] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lr_schedular_type": "cosine"},
            "unknown key 'trl.lr_schedular_type'; did you mean 'trl.",
        ),
        ({"adam_beta2": "high"}, "trl.adam_beta2 = 'high'; expected float"),
        ({"ddp_bucket_cap_mb": True}, "trl.ddp_bucket_cap_mb = True; expected int"),
        (
            {"optim_target_modules": ["q_proj", 1]},
            "trl.optim_target_modules[1] = 1; expected str",
        ),
        ({"lr_scheduler_type": "cosin"}, "TRL refuses [trl] lr_scheduler_type = 'cosin': "),
        ({"optim": "adafactr"}, "TRL refuses [trl] optim = 'adafactr': "),
        ({"adam_beta2": 1.5}, "TRL refuses [trl] adam_beta2 = 1.5: Invalid beta parameter"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "TRL refuses [trl] lr_scheduler_type = "),
    ],
)
def test_what_trl_would_refuse_is_one_line_before_a_model_is_loaded(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check(**options)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


BITSANDBYTES = ["adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "lion_8bit"]


@pytest.mark.parametrize("name", BITSANDBYTES)
def test_an_optimiser_that_is_not_installed_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_optimizer, "is_bitsandbytes_available", lambda: False)
    with pytest.raises(ConfigError) as refused:
        check(optim=name)
    assert str(refused.value).startswith(f"TRL refuses [trl] optim = '{name}': You need to install")
    assert "pip install -U bitsandbytes" in str(refused.value)
    assert "\n" not in str(refused.value)


class EightBits(torch.optim.SGD):
    """Stands in for AdamW of bitsandbytes, and keeps what it was made with."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, weights: Any, *, lr: float, **settings: Any) -> None:
        self.made.append({"lr": lr, **settings})
        super().__init__(weights, lr=lr)


def test_states_of_eight_bits_are_asked_of_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("bitsandbytes.optim")
    vars(package).update(dict.fromkeys(("AdamW", "Lion", "RMSprop"), EightBits))
    monkeypatch.setitem(sys.modules, "bitsandbytes", types.ModuleType("bitsandbytes"))
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", package)
    monkeypatch.setattr(trainer_optimizer, "is_bitsandbytes_available", lambda: True)
    monkeypatch.setattr(EightBits, "made", [])
    check(optim="adamw_8bit", adam_beta2=0.95)
    (made,) = EightBits.made
    assert (made["optim_bits"], made["betas"]) == (8, (0.9, 0.95))


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
@pytest.mark.parametrize("name", ["adamw_8bit", "lion_8bit"])
def test_a_step_with_states_of_eight_bits_moves_the_weights(
    name: str, step: Step, group: list[Scored]
) -> None:
    (trainer,), caught = trainer_of(step, group, trl={"optim": name})
    assert type(trainer.optimizer.optimizer).__module__.startswith("bitsandbytes")
    before = random_qwen().state_dict()
    assert any((caught.weights[key] != was).any() for key, was in before.items())


def test_options_of_any_type_that_trl_has_are_taken() -> None:
    check(
        adam_beta2=0.95,
        optim="sgd",
        optim_args="momentum=0.5",
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": 1e-8},
        torch_empty_cache_steps=3,
        router_aux_loss_coef=0,
        mask_truncated_completions=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )


def test_what_only_a_model_shows_is_one_line_too(step: Step, group: list[Scored]) -> None:
    with pytest.raises(ConfigError, match=r"^TRL refuses \[trl\] router_aux_loss_coef = 0\.1: "):
        step(group, trl={"router_aux_loss_coef": 0.1})


# What is passed on


def trainer_of(step: Step, group: Sequence[Scored], **settings: Any) -> tuple[Any, Catch]:
    made: list[LineGRPOTrainer] = []
    return made, step(group, change=made.append, learning_rate=1e-3, warmup_steps=0, **settings)


def test_a_schedule_is_that_of_trl(step: Step, group: list[Scored]) -> None:
    """The third of four steps begins at half of the cosine's way down."""
    (trainer,), _ = trainer_of(step, group, steps=4, trl={"lr_scheduler_type": "cosine"})
    rates = [row["learning_rate"] for row in trainer.state.log_history if "loss" in row]
    expected = [1e-3 * (1 + math.cos(math.pi * i / 4)) / 2 for i in range(4)]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "kind", "found"),
    [
        ({"optim": "adafactor"}, "Adafactor", {"scale_parameter": False}),
        ({"adam_beta2": 0.5}, "AdamW", {"betas": (0.9, 0.5)}),
    ],
)
def test_an_optimiser_is_that_of_trl(
    step: Step, group: list[Scored], options: Mapping[str, Any], kind: str, found: dict[str, Any]
) -> None:
    (trainer,), catch = trainer_of(step, group, trl=options)
    optimiser = trainer.optimizer.optimizer
    assert type(optimiser).__name__ == kind
    assert {name: optimiser.param_groups[0][name] for name in found} == found
    assert largest(catch.weights) > 0


def test_an_entropy_bonus_is_the_gradient_of_the_mean_entropy(
    step: Step, group: list[Scored]
) -> None:
    """The loss is L - c H: twice the coefficient adds the same once more, and H is logged."""
    none = step(group)
    one = step(group, trl={"entropy_coef": 0.5})
    two = step(group, trl={"entropy_coef": 1.0})
    added = {name: one.gradients[name] - grad for name, grad in none.gradients.items()}
    twice = {name: two.gradients[name] - grad for name, grad in none.gradients.items()}
    assert difference({k: 2 * v for k, v in added.items()}, twice) < 1e-6
    assert largest(added) > 1e-4
    assert one.logs["loss"] == pytest.approx(none.logs["loss"] - 0.5 * none.logs["entropy"])


def test_a_reference_follows_the_policy_and_is_kept_with_it(
    step: Step, group: list[Scored], tmp_path: Path
) -> None:
    """Halfway at every second step: after two steps it is the mean of the first and the last."""
    made: list[LineGRPOTrainer] = []
    first: dict[str, torch.Tensor] = {}

    def change(trainer: LineGRPOTrainer) -> None:
        made.append(trainer)
        first.update({k: v.clone() for k, v in model_of(trainer).state_dict().items()})

    options = {"sync_ref_model": True, "ref_model_mixup_alpha": 0.5, "ref_model_sync_steps": 2}
    settings = {"kl_beta": 0.1, "learning_rate": 1e-2, "warmup_steps": 0}
    catch = step(group, change=change, steps=2, trl=options, **settings)
    mean = {name: (first[name] + weight) / 2 for name, weight in catch.weights.items()}
    assert difference(mean, made[0].ref_model.state_dict()) < 1e-6  # type: ignore[union-attr]
    assert difference(mean, first) > 1e-3
    (checkpoint,) = tmp_path.rglob("checkpoint-2")
    step(group, change=made.append, trl=options, **settings)
    made[1]._load_from_checkpoint(str(checkpoint))
    assert difference(mean, made[1].ref_model.state_dict()) < 1e-6  # type: ignore[union-attr]


def stopped(item: Scored, reason: StopReason) -> Scored:
    return dataclasses.replace(
        item, trajectory=dataclasses.replace(item.trajectory, stop_reason=reason)
    )


@pytest.fixture
def last_is_cut(group: list[Scored]) -> list[Scored]:
    whole = [stopped(item, StopReason.SUBMITTED) for item in group[:3]]
    return [*whole, stopped(group[3], StopReason.MAX_TOKENS)]


DROPS_CUT = {"mask_truncated_completions": True}


def test_a_trajectory_that_met_a_limit_leaves_the_loss_and_its_denominator(
    step: Step, last_is_cut: list[Scored]
) -> None:
    """Its siblings keep the advantages that they have beside it."""

    def leave_out(trainer: LineGRPOTrainer) -> None:
        collect = trainer.collect

        def without(prompts: Sequence[str]) -> dict[str, Any]:
            rows = collect(prompts)
            rows["env_mask"][3] = [0] * len(rows["env_mask"][3])
            return rows

        trainer.collect = without  # type: ignore[method-assign]  # a double

    masked = step(last_is_cut, trl=DROPS_CUT).gradients
    assert difference(masked, step(last_is_cut, change=leave_out).gradients) == 0
    assert difference(masked, step(last_is_cut).gradients) > 1e-4


def test_lines_out_of_the_loss_are_no_part_of_the_ratios(
    step: Step, last_is_cut: list[Scored]
) -> None:
    masked = step(last_is_cut, trl=DROPS_CUT, importance="line").logs
    without = step(last_is_cut[:3], importance="line").logs
    names = [name for name in without if name.startswith("importance/")]
    assert [masked[name] for name in names] == pytest.approx([without[name] for name in names])
    assert len(names) == 5


def test_where_all_trajectories_met_a_limit_nothing_moves(step: Step, group: list[Scored]) -> None:
    cut = [stopped(item, StopReason.MAX_LINES) for item in group]
    catch = step(cut, trl=DROPS_CUT, importance="line")
    assert largest(catch.gradients) == 0
    assert "importance/ratio_mean" not in catch.logs


@pytest.mark.parametrize("reason", StopReason)
def test_limits_are_what_budgets_cut(reason: StopReason) -> None:
    assert reason.is_limit == (
        reason.startswith("max_") or reason in ("context_full", "time_limit")
    )
