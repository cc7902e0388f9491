"""Laws of configuration: who wins, what is refused, what a saved file gives back."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repl_rl.config import Config
from repl_rl.config import resolve as settings_module
from repl_rl.config.describe import find, settings
from repl_rl.config.foreign_words import SAYINGS
from repl_rl.config.resolve import num_changed, refuse_removed, resolve, to_toml
from repl_rl.config.sections import GRPOConfig, RewardConfig, SandboxConfig
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, VerdictKind
from repl_sandbox.types import Isolation

# Who wins


def test_without_a_model_the_starter_preset_applies() -> None:
    config = resolve()
    assert (config.grpo.learning_rate, config.sampling.max_tokens) == (5e-4, 224)


def test_a_model_turns_the_preset_off() -> None:
    assert resolve(flags={"model": "folder"}) == Config(model="folder")


def test_the_preset_of_a_run_stands_in_its_config() -> None:
    assert tomllib.loads(to_toml(resolve()))["preset"] == "starter"
    assert tomllib.loads(to_toml(resolve(flags={"model": "folder"})))["preset"] == "none"


def test_the_preset_can_be_named() -> None:
    """All of a small model's limits without the starter, and the usual ones without a model."""
    assert resolve(overrides=["preset=none"]) == Config()
    small = resolve(overrides=["preset=starter", "model=folder"])
    assert small == replace(resolve(), model="folder")


def test_a_stored_run_without_preset_and_model_is_one_of_the_starter() -> None:
    saved = to_toml(resolve(overrides=["grpo.steps=7"])).replace('preset = "starter"\n', "")
    assert "preset" not in saved
    assert resolve(saved=saved) == resolve(overrides=["grpo.steps=7"])
    goes_on = resolve(saved=saved, flags={"model": "checkpoint"})
    assert num_changed(resolve(saved=saved), goes_on) == 0


@pytest.mark.parametrize("override", ["model=folder", 'model="folder"'])
def test_a_model_may_come_from_an_override(override: str) -> None:
    assert resolve(overrides=[override]) == Config(model="folder")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lora=16", "lora is a section: lora.rank=16"),
        ("grpo=2", "grpo is a section: grpo.steps=2"),
        ("sampling=hf", "sampling is a section: sampling."),
        ("report.trackers=tensorboard", "is a list: --set 'report.trackers=[\"tensorboard\"]'"),
        ("task.families=ode,limit", 'is a list: --set \'task.families=["ode","limit"]\''),
        ("grpo.branching=4", "grpo.branching is a list: --set 'grpo.branching=[4]'"),
        ("task.families=ode", "is a list: --set 'task.families=[\"ode\"]'"),
    ],
)
def test_a_value_of_another_shape_is_said_in_words_of_settings(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(overrides=[override])


def rate(*overrides: str, saved: str = "") -> float:
    return resolve(saved=saved, overrides=overrides).grpo.learning_rate


def test_an_adapter_has_a_learning_rate_of_its_own() -> None:
    assert rate("model=folder", "lora.rank=16") == 1e-5
    assert rate("model=folder", "lora.rank=0") == 1e-6
    assert rate("model=folder", "lora.rank=16", "grpo.learning_rate=3e-6") == 3e-6
    assert rate("lora.rank=16") == 5e-4  # of the starter


def test_a_stored_run_keeps_the_rate_that_it_had() -> None:
    config = resolve(overrides=["model=folder", "lora.rank=16", "grpo.learning_rate=1e-6"])
    assert rate(saved=to_toml(config)) == 1e-6


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    """Preset 80 < first file 1 < second file 2; flag 4 beats file 3; override 6 beats flag 5."""
    first = write(tmp_path / "a.toml", "seed = 3\n[grpo]\nsteps = 1\nproblems_per_step = 5\n")
    second = write(tmp_path / "b.toml", "[grpo]\nsteps = 2\n")
    config = resolve(
        files=[first, second],
        flags={"seed": 4, "task": "five"},
        overrides=["task=six", "sampling.max_lines=7"],
    )
    assert (config.grpo.steps, config.grpo.problems_per_step) == (2, 5)
    assert (config.seed, config.task.name, config.sampling.max_lines) == (4, "six", 7)
    assert config.grpo.learning_rate == 5e-4


def test_a_task_that_is_a_word_is_its_name() -> None:
    """Older runs have such a word; the section that a later layer brings keeps the name."""
    config = resolve(saved="task = 'a:B'", overrides=["task=c:D"])
    assert config.task.name == "c:D"
    assert resolve(saved="task = 'a:B'", flags={"task": {}}).task.name == "a:B"


def test_a_mapping_is_merged_key_by_key() -> None:
    config = resolve(overrides=["reward.line.timeout=-0.2", "reward.verdict.wrong=-0.05"])
    assert config.reward.line == {**RewardConfig().line, OutcomeKind.TIMEOUT: -0.2}
    assert config.reward.verdict == {**RewardConfig().verdict, VerdictKind.WRONG: -0.05}


def test_the_last_override_of_a_key_wins() -> None:
    assert resolve(overrides=["seed=1", "seed=2"]).seed == 2


def test_a_bare_word_is_a_string_and_a_list_is_a_tuple() -> None:
    config = resolve(overrides=["grpo.loss_type=grpo", 'sandbox.preload=["numpy", "sympy"]'])
    assert (config.grpo.loss_type, config.sandbox.preload) == ("grpo", ("numpy", "sympy"))


# What is refused


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("grpo.learning_rat=1", "'grpo.learning_rat'; did you mean 'grpo.learning_rate'?"),
        ("gpro.steps=1", "unknown key 'gpro'; did you mean 'grpo'?"),
        ("learning_rate=1", "unknown key 'learning_rate'; did you mean 'grpo.learning_rate'?"),
        ("sampling.max_token=1", "'sampling.max_token'; did you mean 'sampling.max_tokens'?"),
        ("grpo.temperature=1", "'grpo.temperature'; did you mean 'sampling.temperature'?"),
        ("reward.line.sintax_error=1", "did you mean 'reward.line.syntax_error'?"),
        ("reward.verdict.prooved=1", "did you mean 'reward.verdict.proved'?"),
        ("qqqqqq=1", "unknown key 'qqqqqq'; known sections: "),
        ("grpo.qqqqqq=1", "unknown key 'grpo.qqqqqq'; `repl-rl config grpo` lists what there is"),
    ],
)  # fmt: skip
def test_an_unknown_key_names_the_nearest(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(overrides=[override])
    assert message in str(error.value)


def test_an_unknown_key_of_a_run_is_another_versions_and_one_given_here_is_not() -> None:
    with pytest.raises(
        ConfigError, match=r"'grpo\.qqqqqq'; .* there is; a run's config has it, so"
    ):
        resolve(saved="[grpo]\nqqqqqq = 1")
    with pytest.raises(ConfigError, match=r"'grpo\.zzzzzz'; .* there is$"):
        resolve(saved="[grpo]\nqqqqqq = 1", overrides=["grpo.zzzzzz=1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("grpo.steps=many", "grpo.steps = 'many'; expected int, at least 0"),
        ("grpo.steps=1.5", "grpo.steps = 1.5; expected int"),
        ("grpo.steps=true", "grpo.steps = True; expected int"),
        ("grpo.gradient_checkpointing=1", "grpo.gradient_checkpointing = 1; expected bool or auto"),
        ("sampling.temperature=hot", "sampling.temperature = 'hot'; expected float"),
        ("grpo=3", "grpo is a section: grpo.steps=3"),
        ("sandbox.preload=sympy", "sandbox.preload is a list: --set 'sandbox.preload=["),
        ("reward.line.timeout=x", "reward.line.timeout = 'x'; expected float"),
        ("model=3", "model = 3; expected str or not set (text in quotes, '\"...\"')"),
        ("model=1e9", "model = 1000000000.0; expected str or not set (text in quotes, '\"...\"')"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(overrides=[override])
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("grpo", {"steps": -1}),
        ("grpo", {"steps": "many"}),
        ("grpo", {"loss_type": "ppo"}),
        ("grpo", {"micro_batch_size": 0}),
        ("warmstart", {"learning_rate": 0.0}),
        ("sandbox", {"standby": 65537}),
        ("sandbox", {"isolation": "steel"}),
        ("sampling", {"temperature": float("nan")}),
        ("task", {"tiers": ("one",)}),
        ("reward", {"line": {OutcomeKind.TIMEOUT: "cheap"}}),
    ],
)
def test_a_config_made_in_python_is_refused_in_the_same_words(
    section: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as read:
        resolve(flags={"model": "m", section: values})
    made = type(getattr(Config(), section))(**values)
    with pytest.raises(ConfigError) as built:
        Config(model="m", **{section: made})
    with pytest.raises(ConfigError) as replaced:
        replace(Config(model="m"), **{section: made})
    assert str(read.value) == str(built.value) == str(replaced.value)
    assert str(built.value).startswith(f"{section}.{next(iter(values))}")


def test_words_lists_and_numbers_in_python_become_what_a_file_gives() -> None:
    given: dict[str, Any] = {"isolation": "strict", "preload": ["numpy"], "line_cpu_s": 3}
    made = Config(sandbox=SandboxConfig(**given)).sandbox
    assert (made.isolation, made.preload) == (Isolation.STRICT, ("numpy",))
    numbers: dict[str, Any] = {"learning_rate": np.float64(1e-4), "steps": np.int64(3)}
    swept = Config(grpo=GRPOConfig(**numbers)).grpo
    assert (type(swept.learning_rate), type(swept.steps)) == (float, int)
    prices: Any = {"proved": 1, "wrong": 0}
    assert Config(reward=RewardConfig(verdict=prices)).reward.verdict == {
        VerdictKind.PROVED: 1.0,
        VerdictKind.WRONG: 0.0,
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("grpo.loss_type=ppo", r"loss_type = 'ppo'; expected one of dapo, grpo, dr_grpo, bnpo"),
        ("sampling.device=tpu", r"sampling\.device = 'tpu'; expected one of auto, cpu, cuda"),
        ("sampling.dtype=float16", r"'float16'; expected one of auto, float32, bfloat16"),
        (
            "grpo.scale=3",
            r"grpo\.scale = 3; expected one of group, batch, none",
        ),
        ("grpo.baseline=median", r"'median'; expected one of mean, leave_one_out"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_choice_is_refused_with_the_choices(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(overrides=[override])


@pytest.mark.parametrize(
    "override",
    [
        "grpo.group_size=1",
        "grpo.steps=-1",
        "sampling.max_lines=0",
        "sampling.max_tokens=1",
        "sampling.temperature=-0.1",
        "sampling.temperature=nan",
        "grpo.learning_rate=inf",
        "reward.no_submission=nan",
        "reward.line.timeout=nan",
        "sandbox.standby=-1",
        "sandbox.memory_mib=0",
        "reward.max_line_charge=-1",
        "reward.potential=-1",
        "grpo.line_credit_weight=-1",
        "eval.problems=-1",
        "grading.deadline_s=0",
    ],
)
def test_a_number_that_cannot_work_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=override.partition("=")[0]):
        resolve(overrides=[override])


@pytest.mark.parametrize("override", ["grpo.steps", "=3", "", "  = 3"])
def test_an_override_needs_a_key_and_a_value(override: str) -> None:
    with pytest.raises(ConfigError, match=r"expected section\.key=value"):
        resolve(overrides=[override])


def test_a_value_cannot_become_a_section() -> None:
    with pytest.raises(ConfigError, match="is a value, not a section"):
        resolve(overrides=["seed=1", "seed.x=2"])


def test_silence_may_not_be_a_better_deal_than_errors() -> None:
    with pytest.raises(ConfigError, match="would make silence a better deal"):
        resolve(overrides=["reward.no_submission=-0.3"])


def test_silence_may_not_be_a_better_deal_than_the_worst_submission() -> None:
    """A malformed answer after the most errors earns -0.1 - 0.4, less than -0.45."""
    with pytest.raises(ConfigError, match="would make silence a better deal"):
        resolve(overrides=["reward.no_submission=-0.45"])


def test_a_larger_charge_needs_a_larger_price_of_silence() -> None:
    with pytest.raises(ConfigError, match="expected less than -1 "):
        resolve(overrides=["reward.max_line_charge=0.9"])


def test_no_line_is_paid_for_running() -> None:
    with pytest.raises(ConfigError, match=r"reward\.line\.ok_output = 0\.1 would pay"):
        resolve(overrides=["reward.line.ok_output=0.1"])


def test_errors_may_not_outweigh_a_correct_answer() -> None:
    """0.3 for what numbers support, less 0.4 for errors, is less than 0 for a wrong answer."""
    with pytest.raises(ConfigError, match=r"max_line_charge = 0\.4 would .* less than 0\.3"):
        resolve(overrides=["reward.verdict.supported=0.3"])


@pytest.mark.parametrize(
    ("content", "message"),
    [("grpo = [", "is not valid TOML"), ("\udcff", "is not valid TOML"), (None, "cannot read")],
)
def test_a_file_that_is_no_toml_is_a_config_error(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=message):
        resolve(files=[path])


# What is called something else elsewhere


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("beta", "use grpo.kl_beta"),
        ("num_generations", "use grpo.group_size"),
        ("max_completion_length", "use sampling.max_tokens, which counts"),
        ("per_device_train_batch_size", "a step has grpo.problems_per_step times grpo.group_size"),
        ("gradient_accumulation_steps", "a step has grpo.problems_per_step times grpo.group_size"),
        ("max_steps", "use grpo.steps"),
        ("save_steps", "use report.checkpoint_every"),
        ("use_vllm", "use sampling.engine, 'vllm' in this process or 'vllm-server'"),
        ("scale_rewards", "use grpo.scale"),
        ("epsilon", "use grpo.epsilon_low and grpo.epsilon_high"),
        ("top_k", "lines are sampled from the whole distribution"),
        ("delta", "use trl.delta"),
        ("num_iterations", "use grpo.passes"),
        ("steps_per_generation", "use grpo.updates_per_rollout"),
        ("deepspeed", "a process holds the whole model, or a shard of it by FSDP2"),
        ("fsdp", "the launcher sets it, in an accelerate config"),
        ("sync_ref_model", "use trl.sync_ref_model"),
        ("optim", "use trl.optim"),
        ("lr_scheduler", "use trl.lr_scheduler_type"),
        ("report_to", "a run's numbers are in metrics.jsonl"),
        ("bf16", "`repl-rl config dtype` lists the number types"),
        ("peft_config", "use lora.rank"),
        ("resume_from_checkpoint", "`repl-rl train --resume RUN` resumes a run"),
        ("mask_truncated_completions", "use trl.mask_truncated_completions"),
    ],
)
@pytest.mark.parametrize("section", ["", "grpo.", "sampling."])
def test_a_word_of_the_field_is_answered_with_what_to_use_here(
    word: str, hint: str, section: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(overrides=[f"{section}{word}=1"])
    assert str(refused.value).startswith(f"unknown key '{section}{word}'; {hint}")


def test_what_is_said_of_such_words_names_settings_that_exist() -> None:
    known = {setting.key for setting in settings()}
    named = re.findall(r"\b(?:grpo|sampling|reward|report)\.\w+", " ".join(SAYINGS.values()))
    assert set(named) <= known
    assert len(set(named)) > 15
    assert find("dtype")


def test_no_setting_is_told_to_be_another() -> None:
    assert {setting.key.rpartition(".")[2] for setting in settings()} & set(SAYINGS) == set()


# What is saved


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model=folder"],
        ["model='a \"quoted\" \\folder'", "seed=7"],
        ["grpo.learning_rate=1e-7", "grpo.epsilon_high=1e20", "reward.line.timeout=-0.125"],
        ['sandbox.preload=[]', "task='mine:Task'", "sampling.device=cpu"],
        ["model='tab\tand \u4e2d'", "reward.verdict.undecided=0.5"],
        ["trl.optim=adafactor", "trl.lr_scheduler_kwargs={min_lr=1e-7, deeper={x=[1, 2]}}"],
    ],
)  # fmt: skip
def test_a_saved_config_is_read_back_equal(tmp_path: Path, overrides: list[str]) -> None:
    config = resolve(overrides=overrides)
    path = write(tmp_path / "config.toml", to_toml(config))
    assert resolve(files=[path]) == config


@pytest.mark.parametrize("override", ["dtype=bfloat16", "dtype=3"])
def test_a_type_for_all_is_refused_with_the_two_that_there_are(override: str) -> None:
    with pytest.raises(ConfigError, match=r"expected grpo\.dtype .* or sampling\.dtype "):
        resolve(overrides=[override])


def test_a_saved_config_names_every_key() -> None:
    saved = tomllib.loads(to_toml(Config(model="m")))
    assert set(saved["grpo"]) == set(GRPOConfig.__slots__)
    assert saved["reward"]["line"]["timeout"] == -0.3


# What was removed


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings that nothing reads, one of them in a table; what is said once is not yet."""
    settings_module._say.cache_clear()
    table = {
        "sampling.haste": (False, "leave it out: no line is hasty"),
        "reward.line.haste": (0.3, "leave it out: haste pays nothing"),
    }
    monkeypatch.setattr(settings_module, "_REMOVED", table)


@pytest.mark.usefixtures("removed")
def test_a_removed_setting_at_its_default_is_ignored_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.toml", "[sampling]\nhaste = false\nmax_lines = 7\n")
    config = resolve(files=[file], overrides=["reward.line.haste=0.3"])
    assert config == resolve(overrides=["sampling.max_lines=7"])
    assert capsys.readouterr().err.splitlines() == [
        "repl-rl: sampling.haste = false is ignored; leave it out: no line is hasty",
        "repl-rl: reward.line.haste = 0.3 is ignored; leave it out: haste pays nothing",
    ]


@pytest.mark.usefixtures("removed")
def test_the_default_of_a_removed_setting_in_a_stored_config_is_no_news(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run stores all settings: its reader did not ask for this one."""
    stored = "[sampling]\nhaste = false\n[reward.line]\nhaste = 0.3\n"
    assert (resolve(saved=stored), capsys.readouterr().err) == (resolve(), "")


@pytest.mark.usefixtures("removed")
@pytest.mark.parametrize("layer", ["files", "overrides"])
def test_a_removed_setting_with_another_value_is_refused_with_what_to_do(
    tmp_path: Path, layer: str
) -> None:
    text = "sampling.haste = true\n"
    layers: dict[str, Any] = {
        "files": [write(tmp_path / "a.toml", text)],
        "overrides": [text.strip().replace(" ", "")],
    }
    with pytest.raises(ConfigError) as refused:
        resolve(**{layer: layers[layer]})
    assert str(refused.value) == (
        "sampling.haste = True is no setting any more; leave it out: no line is hasty"
    )


@pytest.mark.usefixtures("removed")
def test_another_value_in_a_stored_config_is_ignored_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its reader cannot leave it out: rows of a run hold the config that they were made with."""
    for _ in range(2):
        assert resolve(saved="[sampling]\nhaste = true\n") == resolve()
    assert capsys.readouterr().err == (
        "repl-rl: sampling.haste = true, as stored, is no setting any more and is ignored\n"
    )


@pytest.mark.usefixtures("removed")
def test_a_run_that_goes_on_gives_up_what_was_removed_in_so_many_words() -> None:
    stored = "[sampling]\nhaste = true\n[reward.line]\nhaste = 0.3\n"
    with pytest.raises(ConfigError) as refused:
        refuse_removed(stored, ["grpo.steps=3"])
    assert str(refused.value) == (
        "the run was made with sampling.haste = true, which repl-rl no longer reads; to resume "
        "without: --set sampling.haste=false"
    )
    refuse_removed(stored, ["grpo.steps=3", "sampling.haste=false"])


@pytest.mark.usefixtures("removed")
def test_all_that_was_removed_is_named_at_once() -> None:
    stored = "[sampling]\nhaste = true\n[reward.line]\nhaste = 0.5\n"
    with pytest.raises(ConfigError, match=r"haste=false --set reward\.line\.haste=0\.3$"):
        refuse_removed(stored, [])


FORMER_VALUES = [
    ("sampling.engine", "repl_rl.engines.kinds:HF", "hf"),
    ("sampling.engine", "repl_rl.engines.kinds:VLLM", "vllm"),
    ("sampling.engine", "repl_rl.engines.kinds:VLLMServer", "vllm-server"),
    ("task.name", "repl_rl.tasks.sympy_proofs.task:SympyProofs", "sympy-proofs"),
]


@pytest.mark.parametrize(("name", "former", "value"), FORMER_VALUES)
def test_a_former_value_is_read_as_what_stands_for_it_which_is_said(
    name: str, former: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_module._say.cache_clear()
    assert resolve(overrides=[f"{name}={former}"]) == resolve(overrides=[f"{name}={value}"])
    assert capsys.readouterr().err == f'repl-rl: {name} = "{former}" is "{value}"; write that\n'


@pytest.mark.parametrize(("name", "former", "value"), FORMER_VALUES)
def test_a_former_value_in_a_stored_config_is_no_news(
    name: str, former: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve(saved=f'{name} = "{former}"') == resolve(overrides=[f"{name}={value}"])
    assert capsys.readouterr().err == ""


def test_a_task_that_is_given_by_its_former_name_alone_is_read() -> None:
    former = "repl_rl.tasks.sympy_proofs.task:SympyProofs"
    assert resolve(flags={"task": former}).task.name == "sympy-proofs"


@pytest.mark.usefixtures("removed")
def test_the_default_may_be_given_above_a_stored_config_that_had_another() -> None:
    stored = "[sampling]\nhaste = true\n"
    assert resolve(saved=stored, overrides=["sampling.haste=false"]) == resolve()


@pytest.mark.usefixtures("removed")
@pytest.mark.parametrize("layer", ["sampling=hf", "sampling.haste={}", "reward=3"])
def test_a_removed_setting_hides_no_other_mistake(layer: str) -> None:
    with pytest.raises(ConfigError):
        resolve(overrides=[layer])


@pytest.mark.parametrize(("name", "row"), settings_module._REMOVED.items())
def test_what_a_stored_run_says_of_each_removed_setting_is_read(
    name: str, row: tuple[object, str]
) -> None:
    section, _, key = name.rpartition(".")
    stored = f"[{section}]\n{key} = {settings_module.toml_value(row[0])}\n"
    assert resolve(saved=stored) == resolve()
    assert name not in {one.key for one in settings()}


# What a stranger's file says


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        pytest.param("seed = " + "9" * 5000, "is not valid TOML", id="digits"),
        pytest.param("seed = " + "[" * 20000, "is not valid TOML", id="brackets"),
        pytest.param("seed = " + "9" * 400, "seed is beyond 2", id="no float"),
        pytest.param("seed = 0x" + "f" * 5000, "is not valid TOML", id="no digits"),
        pytest.param("grpo.dtype = 0x" + "f" * 5000, "is not valid TOML", id="a choice"),
        pytest.param("grpo.kl_beta = " + "9" * 400, "grpo.kl_beta is beyond 2", id="a float"),
        pytest.param(
            "grading.num_workers = 1025",
            "= 1025; expected int, at least 1, at most 1024",
            id="workers",
        ),
        pytest.param("sandbox.memory_mib = 16777217", "at most 16777216", id="memory"),
        pytest.param("sandbox.standby = 65537", "at most 65536", id="kernels"),
    ],
)
def test_a_number_that_no_machine_has_is_refused(saved: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(saved=saved)


@pytest.mark.parametrize("key", ["grpo.kl_beta", "reward.line.timeout", "grpo.steps", "model"])
def test_a_value_does_not_become_a_section_however_deep(key: str) -> None:
    with pytest.raises(ConfigError, match="is a value, not a section"):
        resolve(saved=f"{key}{'.a' * 200} = 1")


@pytest.mark.parametrize("section", ["", "[reward]", "[reward.line]"])
def test_a_foreign_key_is_quoted(section: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as refused:
        resolve(saved=f'{section}\n"a\\u001b[31m\\nb" = 1\n')
    assert str(refused.value).isprintable()


def test_defaults_name_what_is_ours_by_its_entry_point() -> None:
    """Modules may move: a stored config must still be read."""
    assert to_toml(resolve()).count("repl_rl.") == 0
