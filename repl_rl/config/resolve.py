"""Make one Config of what a user set: defaults <- presets <- TOML files <- flags <- `--set`.

A run saves its resolved config as TOML, and that file starts the same run again.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, reduce
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from repl_rl.config import Config
from repl_rl.config.describe import example, unknown
from repl_rl.config.sections import ADAPTER_PRESET, GYM, HUB, STARTER_PRESET
from repl_rl.config.values import hints_of, section_of
from repl_rl.errors import ConfigError
from repl_sandbox.types import Isolation

_WIDTH = 80
"""Columns of a comment."""

_MAX_CHARS = 1 << 16
"""Most characters of a config, twenty times what a run saves: a file may come from anybody."""
_MAX_PARTS = 256
"""Most parts of a key. The library's parser takes time in the square of them."""
_NO_KEYS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|'
    r"'''.*?(?:'''|\Z)|"
    r'"(?:\\.|[^"\\\n])*"?|'
    r"'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments. One that never closes runs to the end, so no character is read twice."""


def resolve(
    *,
    saved: str = "",
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Defaults, then a preset, then TOML files, then flags, then `section.key=value` overrides.

    `saved` is the TOML of a run, which files override. `preset` is `starter` unless one of these
    sets it or names a model. With another preset, `lora.rank` above 0 brings an adapter's defaults.
    Raises ConfigError for an unknown key (the nearest is named) and for a value of another type.

        >>> resolve(overrides=["grpo.steps=10"], flags={"seed": 3}).grpo.steps
        10
    """
    user = _named(_parse_toml(saved, "the config of these trajectories"))
    given = user_settings(files=files, overrides=overrides, flags=flags)
    _merge(user, given)
    _rename_values(user, given)
    _drop_removed(user, given)
    _check(Config, given, "")
    try:
        _check(Config, user, "")
    except ConfigError as error:
        raise ConfigError(
            f"{error}; a run's config has it, so another version of repl-rl made that run: use the "
            f"one that its versions.json names"
        ) from None
    # Runs from before there was `preset` leave it out as a person does.
    user.setdefault("preset", "starter" if user.get("model") is None else "none")
    layers: dict[str, Any] = {}
    if user["preset"] == "starter":
        _merge(layers, STARTER_PRESET)
    elif _has_adapter(user):
        _merge(layers, ADAPTER_PRESET)
    _merge(layers, user)
    return _build(layers)


def _has_adapter(user: Mapping[str, Any]) -> bool:
    """False as well where the rank is no number: that is refused later."""
    section = user.get("lora")
    rank = section.get("rank") if isinstance(section, dict) else None
    return isinstance(rank, int) and rank > 0


_NO_CLAIMS = "leave it out: there are no claims of lemmas, see docs/rewards.md"
_REMOVED: Mapping[str, tuple[Any, str]] = {
    "reward.lemma": (0.3, _NO_CLAIMS),
    "reward.line.claimed": (0.0, _NO_CLAIMS),
    "task.curriculum": (
        False,
        "leave it out, and choose what is drawn with task.families, task.tiers and task.weights",
    ),
    "sampling.speculate": (False, "leave it out: trajectories were the same with and without"),
}
"""Settings that nothing reads, by full name: the default that stored runs have of each, and what
to do in a few words, such as `leave it out: ...`."""


_FORMER_VALUES: Mapping[str, Mapping[str, str]] = {
    "sampling.engine": {
        "repl_rl.engines.kinds:HF": "hf",
        "repl_rl.engines.kinds:VLLM": "vllm",
        "repl_rl.engines.kinds:VLLMServer": "vllm-server",
    },
    "task.name": {"repl_rl.tasks.sympy_proofs.task:SympyProofs": "sympy-proofs"},
}
"""Values that stand for others, by the full name of their setting."""


def _rename_values(user: dict[str, Any], given: dict[str, Any]) -> None:
    """Replace a former value by its present one, with a line on stderr for those in `given`."""
    for name, values in _FORMER_VALUES.items():
        section, key = name.split(".")
        former = _at(user, name)
        if isinstance(former, str) and former in values:
            user[section][key] = values[former]
            if _at(given, name) is not None:
                _say(f"{name} = {toml_value(former)} is {toml_value(values[former])}; write that")


def _drop_removed(user: dict[str, Any], given: dict[str, Any]) -> None:
    """Take removed settings out of `user`, with a line on stderr for those that somebody set.

    Raises ConfigError for one in `given` that is not at its default: it asks for something else.
    """
    for name, (default, advice) in _REMOVED.items():
        asked, value = _pop(given, name), _pop(user, name)
        if asked is not None and asked != default:
            raise ConfigError(f"{name} = {asked!r} is no setting any more; {advice}")
        if asked is not None:
            _say(f"{name} = {toml_value(default)} is ignored; {advice}")
        elif value is not None and value != default:
            _say(f"{name} = {toml_value(value)}, as stored, is no setting any more and is ignored")


def refuse_removed(saved: str, overrides: Sequence[str]) -> None:
    """ConfigError for removed settings that a run was made with and `overrides` do not give up.

    For a run that goes on as it began: without the setting its steps would be others.
    """
    stored, given = _parse_toml(saved, "the config of the run"), user_settings(overrides=overrides)
    found = {
        name: value
        for name, (default, _) in _REMOVED.items()
        if (value := _at(stored, name)) not in (None, default) and _at(given, name) is None
    }
    if found:
        made = ", ".join(f"{name} = {toml_value(value)}" for name, value in found.items())
        without = " ".join(f"--set {name}={toml_value(_REMOVED[name][0])}" for name in found)
        raise ConfigError(
            f"the run was made with {made}, which repl-rl no longer reads; to resume without: "
            f"{without}"
        )


@cache
def _say(text: str) -> None:
    """Write a line to stderr, once: a command resolves the config of a run more than once."""
    # Without handlers, as at the command line, a logger writes to stderr.
    logging.getLogger("repl_rl").warning("repl-rl: %s", text)


def _at(values: Any, name: str) -> Any:  # a setting's value, None where it is not set
    for key in name.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _pop(values: Any, name: str) -> Any:  # likewise, and takes it out
    section, _, key = name.rpartition(".")
    parent = _at(values, section)
    return parent.pop(key, None) if isinstance(parent, dict) else None


_IMPORTED = ("task.name", "transcript", "sampling.sampler", "reward.function", "grpo.credit")
"""Settings that may name code to import."""
_OUTSIDE = ("sandbox.isolation", "sandbox.warmup", "sampling.servers", "workers.launch")
"""Settings that act outside of kernels' walls."""


def user_settings(
    *,
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge the settings of files, flags and overrides, by section; nothing is checked."""
    user: dict[str, Any] = {}
    layers = [*map(_read_toml, files), flags or {}, *map(_parse_override, overrides)]
    for layer in layers:
        _merge(user, _named(layer))
    return user


def refuse_foreign_code(
    config: Config, given_here: Mapping[str, Any], name: str, *, to_sample: bool = False
) -> None:
    """ConfigError for code that the config of this name runs and nobody here has named.

    It gives all settings to repeat. `given_here`: `user_settings` of a person. With `to_sample`
    also for an engine of its own, and for what reaches beyond the walls of kernels: sources that
    their server runs, commands that start workers, addresses that get weights.
    """
    usual = Config()
    found: list[tuple[str, str]] = []
    for key in (*_IMPORTED, *(("sampling.engine",) if to_sample else ())):
        value = _value(config, key)
        is_data = key == "task.name" and value.startswith((HUB, GYM))
        if ":" in value and not is_data and _at(given_here, key) is None:
            found.append(("names code of its own", f"{key}={value}"))
    foreign = set(config.sandbox.preload) - {*usual.sandbox.preload}
    if foreign and _at(given_here, "sandbox.preload") is None:
        told = f"has kernels load {', '.join(map(repr, sorted(foreign)))}"
        found.append((told, f"sandbox.preload={json.dumps(config.sandbox.preload)}"))
    for key in _OUTSIDE if to_sample else ():
        value = _value(config, key)
        if value not in (_value(usual, key), Isolation.STRICT) and _at(given_here, key) is None:
            found.append(("reaches beyond kernels", f"{key}={toml_value(value)}"))
    if found:
        whys = ", ".join(dict.fromkeys(why for why, _ in found))
        words = " ".join(f"--set {shlex.quote(word)}" for _, word in found)
        raise ConfigError(f"{name} {whys}; if you trust it: {words}")


def _value(config: Config, key: str) -> Any:
    return reduce(getattr, key.split("."), config)


def _named(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layer with a task that is given by its name alone as a section with this name."""
    task = layer.get("task")
    return {**layer, "task": {"name": task}} if isinstance(task, str) else dict(layer)


def num_changed(before: Config, after: Config) -> int:
    """Count the values that differ, apart from those that name the policy."""
    return sum(key not in ("model", "preset") for key, _, _ in differences(before, after))


def differences(before: Config, after: Config) -> list[tuple[str, str, str]]:
    """(name, value before, value after) of each value that differs, as TOML has it."""
    was, now = (_leaves(msgspec.to_builtins(one), "") for one in (before, after))
    return [
        (key, toml_value(was.get(key)), toml_value(now.get(key)))
        for key in was | now
        if was.get(key) != now.get(key)
    ]


def _leaves(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        inner = _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else None
        leaves |= {prefix + key: value} if inner is None else inner
    return leaves


def _build(layers: Mapping[str, Any]) -> Config:
    # Mappings of the config are merged key by key over their defaults, like sections.
    base = msgspec.to_builtins(Config())
    _merge(base, layers)
    return Config(**base)


def to_toml(config: Config, *, comments: Mapping[str, str] | None = None) -> str:
    """The config as TOML text that `resolve(files=...)` reads back to an equal Config.

    `comments` maps a setting's full name to the comment above it.
    """
    return "\n".join(_toml_lines("", msgspec.to_builtins(config), comments or {})) + "\n"


def _toml_lines(
    section: str, values: Mapping[str, Any], comments: Mapping[str, str]
) -> Iterator[str]:
    nested = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    if section:
        yield f"\n[{section}]"
        yield from _comment(comments.get(section, ""))
    for key, value in values.items():
        if key in nested:
            continue
        comment = comments.get(f"{section}.{key}" if section else key, "")
        yield from _comment(comment)
        if value is not None:
            yield f"{key} = {toml_value(value)}"
        elif comment:
            yield f"# {key} is not set"
    for key, value in nested.items():
        yield from _toml_lines(f"{section}.{key}" if section else key, value, comments)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def toml_value(value: Any) -> str:  # a number, a word, a boolean or a list of these
    """Write a value as TOML: JSON's strings, numbers, booleans and flat lists are TOML's too."""
    return msgspec.json.encode(value).decode()


def read_config(path: Path) -> str:
    """The text of a config file, or its beginning; ConfigError where it cannot be read."""
    try:
        with path.open() as file:  # which may be a device and have no end
            return file.read(_MAX_CHARS + 1)
    except OSError as error:
        raise ConfigError(f"cannot read config file {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    return _parse_toml(read_config(path), repr(str(path)))


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        values = _loads(text)
        repr(values)  # refuse what has none: no error could show it
    # A ValueError where a number has thousands of digits, a RecursionError where brackets stand
    # in brackets thousands deep.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from None
    return values


def _loads(text: str) -> dict[str, Any]:
    """ValueError for text that is not TOML, and for text that would take long to parse."""
    if len(text) > _MAX_CHARS:
        raise ValueError(f"it has more than {_MAX_CHARS:,} characters")
    keys = re.split(r"[=,{}\[\]\n]", _NO_KEYS.sub("", text))
    if any(key.count(".") >= _MAX_PARTS for key in keys):
        raise ValueError(f"expected keys of at most {_MAX_PARTS} parts")
    return tomllib.loads(text)


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not key.strip() or key.count(".") >= _MAX_PARTS:
        raise ConfigError(f"--set {override!r}; expected section.key=value")
    try:
        value = _loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text  # a bare word is a string
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping):
            below = into.setdefault(key, {})
            if not isinstance(below, dict):
                raise ConfigError(f"{key!r} is a value, not a section")
            _merge(below, value)
        else:
            into[key] = value


def _check(shape: type, values: Mapping[str, Any], prefix: str) -> None:
    """Refuse keys that nothing reads, and values where sections or lists belong."""
    hints = hints_of(shape)
    for key, value in values.items():
        name = prefix + key
        if name == "dtype":
            raise ConfigError(
                f"{name} = {value!r} is ambiguous; expected grpo.dtype for the update or "
                f"sampling.dtype for the engine"
            )
        if key not in hints:
            raise unknown(name)
        hint = hints[key]
        if section := section_of(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{name} is a section: {example(name, value)}")
            _check(section, value, f"{name}.")
        elif get_origin(hint) is tuple and isinstance(value, str | int | float):
            parts = value.split(",") if isinstance(value, str) else [value]
            raise ConfigError(f"{name} is a list: --set '{name}={toml_value(parts)}'")
        elif isinstance(value, Mapping):
            _check_names(hint, value, name)


def _check_identifiers(values: Mapping[str, Any], name: str) -> None:
    """Refuse keys that are no names of Python's, in tables below, too: nobody has such options."""
    for key, value in values.items():
        if not key.isidentifier() or not key.isascii():
            raise ConfigError(
                f"{name}.{key!r} is no name; expected letters, digits and underscores"
            )
        if isinstance(value, Mapping):
            _check_identifiers(value, f"{name}.{key}")


def _check_names(hint: Any, values: Mapping[str, Any], name: str) -> None:
    kinds = get_args(hint)[0] if get_args(hint) else None
    if kinds is str:  # TRL knows which there are
        _check_identifiers(values, name)
        return
    if not (isinstance(kinds, type) and issubclass(kinds, StrEnum)):
        raise ConfigError(f"{name!r} is a value, not a section")
    known = [f"{name}.{kind}" for kind in kinds]
    for key in values:
        full = f"{name}.{key}"
        if full not in known:
            raise unknown(full, known)
        if isinstance(values[key], Mapping):
            raise ConfigError(f"{full!r} is a value, not a section")
