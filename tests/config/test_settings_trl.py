"""Laws of the options that are passed on to TRL: taken by their names, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from repl_rl.config.resolve import differences, resolve
from repl_rl.errors import ConfigError


def test_options_of_trl_are_taken_by_their_names_there() -> None:
    config = resolve(overrides=["trl.lr_scheduler_type=cosine", "trl.adam_beta2=0.95"])
    assert config.trl == {"lr_scheduler_type": "cosine", "adam_beta2": 0.95}
    assert differences(resolve(), config) == [
        ("trl.lr_scheduler_type", "null", '"cosine"'),
        ("trl.adam_beta2", "null", "0.95"),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num_generations", "trl.num_generations is not taken; use grpo.group_size"),
        ("num_iterations", "trl.num_iterations is not taken; use grpo.passes"),
        ("seed", "trl.seed is not taken; use seed"),
        ("vllm_group_port", "trl.vllm_group_port is not taken; use sampling.engine, 'vllm' in"),
        ("eval_strategy", "trl.eval_strategy is not taken; use eval.every, the steps between"),
        ("dataloader_num_workers", "trl.dataloader_num_workers is not taken; problems come in"),
        ("reward_weights", "trl.reward_weights is not taken; a run has one reward"),
        (
            "sync_ref_model",
            "trl.sync_ref_model = true needs a reference model; expected grpo.kl_beta",
        ),
        (
            "ref_model_sync_steps",
            "trl.ref_model_sync_steps would have no effect; expected trl.sync",
        ),
        ("delta", "trl.delta would have no effect; expected grpo.passes or"),
        ("vespo_k_pos", "trl.vespo_k_pos would have no effect; expected grpo.loss_type = 'vespo'"),
    ],
)
def test_an_option_of_trl_that_could_not_work_is_refused_with_the_reason(
    name: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(overrides=[f"trl.{name}=1", "model=m"])
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("key", ["'a b'", "a.'b c'", "'\u00e9'"])
def test_a_key_that_no_option_can_have_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[trl]\n{key} = 1\n")
    with pytest.raises(ConfigError, match="is no name; expected letters, digits and underscores"):
        resolve(files=[path])
