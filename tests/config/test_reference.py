"""Laws of the reference of settings: all of them are in it, and it says what the config does."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from repl_rl.config import Config
from repl_rl.config.describe import Setting, find, settings
from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind

Call = Callable[..., tuple[int, str, str]]


def one(key: str) -> Setting:
    return next(setting for setting in settings() if setting.key == key)


@pytest.mark.parametrize("key", [setting.key for setting in settings()])
def test_every_setting_says_what_it_is(key: str) -> None:
    doc = one(key).doc
    assert doc.endswith((".", ":"))
    assert "\n\n" not in doc


def test_every_key_of_a_saved_config_is_a_setting() -> None:
    saved = tomllib.loads(to_toml(Config(model="m")))
    known = {setting.key for setting in settings()}
    assert keys_of(saved, "") <= known


def keys_of(values: dict[str, object], prefix: str) -> set[str]:
    found = {prefix + key for key in values}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= keys_of(value, f"{prefix}{key}.")
    return found


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("grpo.steps", "int, at least 0"),
        ("sampling.temperature", "float, at least 0"),
        ("sandbox.grace_s", "float, more than 0"),
        ("grading.num_workers", "int, at least 1, at most 1024"),
        ("grpo.gradient_checkpointing", "bool or auto"),
        ("grpo.scale", "one of group, batch, none"),
        ("sandbox.isolation", "one of auto, strict, none"),
        ("sandbox.preload", "list of str"),
        ("sandbox.warmup", "list of str or not set"),
        ("model", "str or not set"),
        ("reward.line", "table of float"),
        ("reward.line.timeout", "float"),
        ("grpo", ""),
    ],
)
def test_what_a_setting_takes_is_said_in_words(key: str, kind: str) -> None:
    assert one(key).kind == kind


def test_a_default_may_be_another_for_the_starter_and_for_an_adapter() -> None:
    assert (one("grpo.steps").default, one("grpo.steps").others) == (200, {"the starter": 70})
    assert one("grpo.scale").others == {}
    rate = one("grpo.learning_rate")
    assert (rate.default, rate.others) == (1e-6, {"the starter": 5e-4, "an adapter": 1e-5})


def test_every_outcome_has_a_key_whether_it_is_priced_or_not() -> None:
    keys = {setting.key for setting in find("reward.line")}
    assert keys == {"reward.line", *(f"reward.line.{kind}" for kind in OutcomeKind)}


def test_a_setting_is_found_by_its_last_part() -> None:
    assert [setting.key for setting in find("kl_beta")] == ["grpo.kl_beta"]


def test_a_section_is_found_with_all_that_is_in_it_and_nothing_else() -> None:
    assert [setting.key for setting in find("eval")] == ["eval", "eval.problems", "eval.every"]


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'grpo.stps'; did you mean 'grpo.steps'\?"):
        find("grpo.stps")


# The command


def test_one_setting_is_told_whole(call: Call) -> None:
    assert call("config", "grpo.scale") == (
        0,
        'grpo.scale = "group"\n'
        "    one of group, batch, none\n"
        "    Divisor of the outcome advantage: the standard deviation over the `group` or\n"
        "    the `batch`; `none`: undivided.\n",
        "",
    )


def test_what_is_not_set_is_told(call: Call) -> None:
    assert call("config", "model")[1].startswith("model = not set\n    str or not set\n")


def test_a_table_is_told_once_with_its_prices_below(call: Call) -> None:
    out = call("config", "reward.verdict")[1]
    assert out.startswith("[reward.verdict]\n    table of float\n    Outcome reward by verdict.")
    assert out.count("Outcome reward by verdict.") == 1
    assert "\n    reward.verdict.supported = 0.8\n" in out
    assert "\n    reward.verdict.undecided = not set\n" in out


def test_all_settings_fit_80_columns_each_with_its_words(call: Call) -> None:
    code, out, _ = call("config")
    assert code == 0
    assert [row for row in out.splitlines() if len(row) > 80] == []
    for setting in settings():
        assert f"{setting.key} = " in out or f"[{setting.key}]\n" in out
    assert "\n\nseed = 0\n    int\n" in out


def test_an_unknown_setting_is_bad_usage(call: Call) -> None:
    assert call("config", "grpo.stps") == (
        2,
        "",
        "repl-rl: unknown key 'grpo.stps'; did you mean 'grpo.steps'?\n",
    )


def test_a_dry_run_says_what_each_setting_is_and_is_still_a_config(
    call: Call, tmp_path: Path
) -> None:
    out = call("train", "--dry-run", "--set", "grpo.steps=3")[1]
    assert "\n# Updates of the policy; 0 only measures it.\nsteps = 3\n" in out
    assert "\n# model is not set\n" in out
    assert [row for row in out.splitlines() if len(row) > 80] == []
    (tmp_path / "dry.toml").write_text(out)
    expected = resolve(overrides=["grpo.steps=3", "sampling.engine=hf"])
    assert resolve(files=[tmp_path / "dry.toml"]) == expected


def test_a_run_saves_its_config_without_words() -> None:
    assert "#" not in to_toml(Config())
