"""Mutation tests of a reward: change one constant at a time and see whether a transcript notices.

    Config, transcripts -> (mutant, who noticed) ...

A constant that no transcript notices could be wrong unseen. Knows the config's shape; pure but for
the reward function that it calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, get_args, get_type_hints

from repl_rl.config import Config
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import RewardFunction
from repl_rl.errors import ConfigError
from repl_rl.golden.check import Played, misses, score
from repl_rl.types import Reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A reward config with one constant changed."""

    key: str
    """Below `[reward]`, such as `line.timeout`."""
    change: str
    """What it was and is, such as `-0.3 -> 0.3`."""
    field: str
    """The field of `RewardConfig` that differs."""
    value: Any
    """Of that field. Any: a number or a mapping of numbers."""


class Fate(StrEnum):
    """What became of a mutant."""

    NOTICED = "noticed"
    """A transcript misses under it."""
    REFUSED = "refused"
    """The config itself refuses it."""
    UNWRITTEN = "unwritten"
    """It changes a reward, but no transcript states that reward."""
    UNTOUCHED = "untouched"
    """It changes no reward: no transcript reaches the constant, or the reward does not read it."""

    @property
    def is_survivor(self) -> bool:
        return self in (Fate.UNWRITTEN, Fate.UNTOUCHED)


def mutants(config: RewardConfig) -> Iterator[Mutant]:
    """Each constant with its sign flipped, as zero and doubled; a zero as 0.1 and -0.1.

    An outcome or verdict that the config does not name counts as a zero: to leave it out is a
    decision, too.
    """
    hints = get_type_hints(RewardConfig)
    for one in fields(config):
        value = getattr(config, one.name)
        if isinstance(value, Mapping):
            for name in get_args(hints[one.name])[0]:
                for change, changed in _changes(value.get(name)):
                    key = f"{one.name}.{name}"
                    yield _mutant(key, change, one.name, {**value, name: changed})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for change, changed in _changes(value):
                yield _mutant(one.name, change, one.name, changed)


def _mutant(key: str, change: str, name: str, value: Any) -> Mutant:
    return Mutant(key=key, change=change, field=name, value=value)


def _changes(value: float | None) -> Iterator[tuple[str, float]]:
    for changed in (-value, 0.0, 2 * value) if value else (0.1, -0.1):
        yield f"{'none' if value is None else f'{value:g}'} -> {changed:g}", changed


def _watched(config: RewardConfig, read: set[str]) -> RewardConfig:
    """The same config; the names of all fields read from it, or from its copies, go to `read`."""

    class Watched(RewardConfig):
        def __getattribute__(self, name: str) -> Any:  # Any: whatever a field holds
            read.add(name)
            return super().__getattribute__(name)

    return Watched(**{one.name: getattr(config, one.name) for one in fields(config)})


_FIELDS = tuple(one.name for one in fields(RewardConfig) if one.name != "function")


def fields_unread(
    function: RewardFunction, config: RewardConfig, played: Sequence[Played]
) -> tuple[str, ...]:
    """Fields of the config that the function does not read as it scores the transcripts.

    Empty for the default function: a constant that no transcript reaches could be wrong, too.
    """
    if config.function == RewardConfig().function:
        return ()
    read: set[str] = set()
    for one in played:
        score(one, function, _watched(config, read))
    return tuple(name for name in _FIELDS if name not in read)


def fate(
    mutant: Mutant,
    config: Config,
    function: RewardFunction,
    played: Sequence[Played],
    rewards: Sequence[Reward],
) -> Fate:
    """Whether the transcripts notice it; `rewards` is what they earn under the unchanged config."""
    try:
        reward = replace(config.reward, **{mutant.field: mutant.value})
        changed = replace(config, reward=reward).reward
    except ConfigError:
        return Fate.REFUSED
    result = Fate.UNTOUCHED
    for one, earned in zip(played, rewards, strict=True):
        mutated = score(one, function, changed).reward
        if misses(one, mutated):
            return Fate.NOTICED
        if mutated != earned:
            result = Fate.UNWRITTEN
    return result


def gather(fates: Sequence[tuple[Mutant, Fate]]) -> list[tuple[Mutant, Fate]]:
    """One fate for each mutant over several files: the best, in the order of `Fate`."""
    best: dict[tuple[str, str], tuple[Mutant, Fate]] = {}
    order = list(Fate)
    for mutant, one in fates:
        name = mutant.key, mutant.change
        if name not in best or order.index(one) < order.index(best[name][1]):
            best[name] = mutant, one
    return list(best.values())
