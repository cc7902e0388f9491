"""Values of settings: their types and bounds, checked and said in words.

    type of a field, value from TOML or from Python -> value as the config holds it

Does not know any setting, nor where values come from.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from repl_rl.errors import ConfigError

_LONGEST = 1 << 63


@cache
def hints_of(section: type) -> Mapping[str, Any]:
    """Types of a section's fields by name, with their bounds."""
    return get_type_hints(section, include_extras=True)


def section_of(hint: Any) -> type | None:
    """The class of a section; None for the type of a value."""
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def checked(name: str, value: Any, hint: Any) -> Any:
    """A value, or a section with all that is in it, as `hint` has it.

    Tables become sections, lists tuples, and words members of their enum. Raises ConfigError, with
    the setting's full name, for another type and for a number out of bounds.

        >>> checked("seed", 3, int), checked("task.tiers", [1], tuple[int, ...])
        (3, (1,))
    """
    if section := section_of(hint):
        return _section(name, value, section)
    value = _plain(value)
    _check_numbers(name, value)
    if isinstance(value, Mapping) and get_origin(hint) is Mapping:
        of_keys, of_values = get_args(hint)
        return {
            _converted(f"key of {name}", key, of_keys): checked(f"{name}.{key}", inner, of_values)
            for key, inner in value.items()
        }
    return _converted(name, value, hint)


def _section(name: str, value: Any, section: type) -> Any:
    hints = hints_of(section)
    if isinstance(value, section):
        value = {key: getattr(value, key) for key in hints}
    if not isinstance(value, Mapping) or not value.keys() <= hints.keys():
        raise ConfigError(f"{name} = {value!r}; expected {section.__name__}")
    return section(**{key: checked(f"{name}.{key}", one, hints[key]) for key, one in value.items()})


def _plain(value: Any) -> Any:
    """The number of Python's that a number of numpy's is; anything else as it is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _converted(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        expected = f"{type_words(hint)}{bound_words(hint)}"
        if str in (hint, *get_args(hint)) and not isinstance(value, str):
            expected += """ (text in quotes, '"..."')"""
        raise ConfigError(f"{name} = {value!r}; expected {expected}") from None


def _check_numbers(name: str, value: Any) -> None:
    """ConfigError for a number that no setting takes, within lists and tables, too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_numbers(f"{name}.{key}", inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            _check_numbers(name, inner)
    # Before all else: a longer integer may have no float, nor digits that Python prints.
    elif isinstance(value, int) and abs(value) > _LONGEST:
        raise ConfigError(f"{name} is beyond 2**63; expected a number that fits 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} = {value}; expected a finite number")


# Words


def choices(hint: Any) -> tuple[str, ...]:
    """The words that a field takes; none where it takes any."""
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    return tuple(hint) if isinstance(hint, type) and issubclass(hint, StrEnum) else ()


def type_words(hint: Any) -> str:
    """Name a type: `float`, `list of str`, `str or not set`, `one of a, b, c`, `bool or auto`."""
    if words := choices(hint):
        return f"one of {', '.join(words)}" if len(words) > 1 else words[0]
    arguments = [one for one in get_args(hint) if one not in (type(None), ...)]
    if get_origin(hint) is Annotated:
        return type_words(arguments[0])
    if type(None) in get_args(hint):
        return f"{type_words(arguments[0])} or not set"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(type_words, arguments))
    if get_origin(hint) is tuple:
        return f"list of {type_words(arguments[0])}"
    if arguments and arguments[1] is Any:
        return "table"
    if arguments:
        return f"table of {type_words(arguments[1])}"
    return str(hint.__name__)


def bound_words(hint: Any) -> str:
    """Name the bounds, such as `, at least 1, at most 1024`; empty where there are none."""
    return "".join(
        f", {words} {bound}"
        for meta in _metas(hint)
        for words, bound in (("more than", meta.gt), ("at least", meta.ge), ("at most", meta.le))
        if bound is not None
    )


def _metas(hint: Any) -> Iterator[msgspec.Meta]:
    """The bounds of a type, and of those that it is a union of."""
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    elif get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from _metas(one)
