"""All settings and what they mean: read from the config itself, the docstring under each field.

    Config -> [Setting];  an unknown name -> what its writer may have meant

Does not know where values come from, nor who asks.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import msgspec

from repl_rl.base.plugins import nearest
from repl_rl.config import Config
from repl_rl.config.foreign_words import SAYINGS
from repl_rl.config.sections import ADAPTER_PRESET, STARTER_PRESET
from repl_rl.config.values import bound_words, hints_of, section_of, type_words
from repl_rl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the config, or a section of it."""

    key: str
    """Full name, such as `grpo.steps`."""
    kind: str
    """Values that it takes, in words; empty for a section."""
    default: Any
    """Default as TOML has it: a number, a word, a list, None where it is not set, or a mapping of
    these."""
    others: Mapping[str, Any]
    """Defaults of certain policies, by what these are called in a sentence."""
    doc: str
    """One paragraph."""

    @property
    def is_section(self) -> bool:
        return not self.kind


def settings(shape: type = Config, prefix: str = "") -> Iterator[Setting]:
    """Every setting in the order of the config, each section before what is in it."""
    docs = field_docs(shape)
    hints = hints_of(shape)
    for field in dataclasses.fields(shape):
        key, hint = prefix + field.name, hints[field.name]
        section = section_of(hint)
        default = None if section else _default(field)
        yield Setting(
            key=key,
            kind="" if section else f"{type_words(hint)}{bound_words(hint)}",
            default=default,
            others=_others(key),
            doc=_paragraph(section.__doc__ or "") if section else docs.get(field.name, ""),
        )
        if section:
            yield from settings(section, f"{key}.")
        elif default and isinstance(default, Mapping):
            yield from _prices(key, hint, default, docs.get(field.name, ""))


def _prices(key: str, hint: Any, defaults: Mapping[str, float], doc: str) -> Iterator[Setting]:
    """The keys of a mapping, those without a default included."""
    names, value = get_args(hint)
    for name in map(str, names):
        default = defaults.get(name)
        yield Setting(
            key=f"{key}.{name}",
            kind=type_words(value),
            default=default,
            others={},
            doc=doc,
        )


def find(name: str) -> list[Setting]:
    """The setting of this name and all that is in it, or the settings whose last part it is.

    Raises ConfigError, with the nearest name, where there is none.
    """
    known = list(settings())
    matches = [one for one in known if f"{one.key}.".startswith(f"{name}.")]
    matches = matches or [one for one in known if one.key.rpartition(".")[2] == name]
    if not matches:
        raise unknown(name)
    return matches


def example(section: str, value: object) -> str:
    """A setting of this section that may have been meant by a value for the section itself."""
    inside = [one for one in find(section) if not one.is_section]
    alike = [one for one in inside if type(one.default) is type(value)]
    return f"{(alike or inside)[0].key}={value}"


def option_hint(option: str, value: str) -> str | None:
    """Setting to type in place of an option that no command has; None where nothing is alike."""
    word = option.lstrip("-").replace("-", "_").lower()
    if saying := SAYINGS.get(word):
        # VALUE, not what was typed: it may count something else, as epochs are no steps.
        return re.sub(r"^use ([a-z]+\.\w+)$", r"use --set \1=VALUE", saying)
    try:
        setting = find(word)[0]
    except ConfigError:
        return None
    key = setting.key if not setting.is_section else find(word)[1].key
    return f"use --set {key}={value}"


def unknown(name: str, known: Iterable[str] | None = None) -> ConfigError:
    """Return the error for a key that nothing reads.

    It says what a word of the field is called here, or names the nearest key.
    """
    full = [one.key for one in settings()] if known is None else list(known)
    hint = SAYINGS.get(name.rpartition(".")[2].lower()) or _nearest(name, full)
    return ConfigError(f"unknown key {name!r}; {hint}")


def _nearest(name: str, known: list[str]) -> str:
    by_leaf = {key.rpartition(".")[2]: key for key in known}
    sections = sorted({key.partition(".")[0] for key in known})
    section, dot, _ = name.partition(".")
    there = f"known sections: {', '.join(sections)}"
    if dot and section in sections:
        there = f"`repl-rl config {section}` lists what there is"
    leaves = difflib.get_close_matches(name.rpartition(".")[2], by_leaf, n=1)
    by_name = [f"did you mean {by_leaf[leaf]!r}?" for leaf in leaves]
    return nearest(name, known, otherwise=(by_name or [there])[0])


@cache
def field_docs(shape: type) -> dict[str, str]:
    """The docstring under each field of a class, as one paragraph; fields without one are left out.

    These docstrings exist only in the source, which is installed with the package. It is read once.
    """
    (made,) = ast.parse(inspect.cleandoc(inspect.getsource(shape))).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: _paragraph(below.value.value)
        for field, below in itertools.pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def _paragraph(text: str) -> str:
    """Return a docstring on one row, without the example at its end."""
    return " ".join(text.partition(">>>")[0].split())


def _default(field: dataclasses.Field[Any]) -> Any:  # any setting's
    made = (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )
    return msgspec.to_builtins(made)


def _others(key: str) -> dict[str, Any]:
    section, _, leaf = key.rpartition(".")
    presets = {"the starter": STARTER_PRESET, "an adapter": ADAPTER_PRESET}
    return {
        name: preset[section][leaf]
        for name, preset in presets.items()
        if leaf in preset.get(section, {})
    }
