"""Suites of golden transcripts: a file, with the reward that it asks for.

    paths -> Suite (file, config, reward, played transcripts) -> misses, results of mutants

Knows files, configs and modules that lie beside a file. Does not know screens or exit codes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Self

from repl_rl.base.plugins import search_too
from repl_rl.config import Config
from repl_rl.config.resolve import resolve, user_settings
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import RewardFunction, load_reward
from repl_rl.errors import ConfigError
from repl_rl.golden.check import (
    Miss,
    Mutant,
    MutantResult,
    PlayedGolden,
    fields_unread,
    gather,
    misses,
    mutants,
    play_one,
    score,
    try_mutant,
)
from repl_rl.golden.text import GoldenFile, find_files, read_file
from repl_rl.records import Scored
from repl_rl.transcript.chat import CHATS
from repl_rl.transcript.format import PYTHON

_OURS = RewardConfig().function


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One file with its config and its reward."""

    file: GoldenFile
    config: Config
    reward: RewardFunction

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        files: Sequence[Path] = (),
        overrides: Sequence[str] = (),
        loads_code: bool = False,
    ) -> Self:
        """The config is that of the file, under `files` and `overrides`.

        With `loads_code` the file may name a module beside it as its reward. Raises ConfigError for
        a file or a setting that cannot be read, and for code that nobody named: see
        `reward_beside`.
        """
        file = read_file(path)
        config = configured(file, files=files, overrides=overrides)
        is_named = "function" in user_settings(files=files, overrides=overrides).get("reward", {})
        reward = reward_beside(path, config.reward, is_named=is_named, loads_code=loads_code)
        return cls(file=file, config=config, reward=reward)

    def played(self) -> list[PlayedGolden]:
        """All transcripts. ConfigError where something is submitted and no verdict written."""
        return [play_one(self.file, index) for index in range(len(self.file.goldens))]

    def scored(self, played: PlayedGolden) -> Scored:
        return score(played, self.reward, self.config.reward)

    def misses(self) -> Iterator[Miss]:
        """Yield the misses: places where file and code differ."""
        for index in range(len(self.file.goldens)):
            yield from self.misses_of(index)

    def misses_of(self, index: int) -> list[Miss]:
        """Return the misses of one transcript."""
        played = play_one(self.file, index)
        return misses(played, self.scored(played).reward)

    def results(self) -> Iterator[tuple[Mutant, MutantResult]]:
        """Every mutant of a constant that the reward reads, with its result."""
        played = self.played()
        rewards = [self.scored(one).reward for one in played]
        unread = self.unread()
        for mutant in mutants(self.config.reward):
            if mutant.field not in unread:
                yield mutant, try_mutant(mutant, self.config, self.reward, played, rewards)

    def unread(self) -> tuple[str, ...]:
        """Keys below `[reward]` with constants that the reward does not read."""
        return fields_unread(self.reward, self.config.reward, self.played())


@dataclass(frozen=True, slots=True, kw_only=True)
class Suites:
    """Golden files that are run together."""

    suites: tuple[Suite, ...]

    @classmethod
    def open(
        cls, paths: Sequence[Path], *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
    ) -> Self:
        """One for each file, and for each `*.repl` below a folder, with the reward that lies beside
        it if it names one; ConfigError as `Suite.open`."""
        suites = (
            Suite.open(path, files=files, overrides=overrides, loads_code=True)
            for path in find_files(paths)
        )
        return cls(suites=tuple(suites))

    def mutate(self, *, skip: Sequence[str] = ()) -> list[tuple[Mutant, MutantResult]]:
        """One result for each mutant, whichever file decided it. `skip` names keys or sections.

        Raises ConfigError for one that no mutant has.
        """
        found = [pair for suite in self.suites for pair in suite.results()]
        left = [pair for pair in found if not any(_is_below(pair[0], key) for key in skip)]
        for key in skip:
            if not any(_is_below(mutant, key) for mutant, _ in found):
                such = f", such as {found[0][0].key!r}" if found else ""
                raise ConfigError(f"no mutant of {key!r} to skip; expected a key or section{such}")
        return gather(left)

    def summary(self, num_missed: int) -> str:
        """Say the result in one line: `12 transcripts in 2 files: all as written`."""
        num_goldens = sum(len(suite.file.goldens) for suite in self.suites)
        num_files = len(self.suites)
        result = f"{num_missed} not as written" if num_missed else "all as written"
        return f"{_counted(num_goldens, 'transcript')} in {_counted(num_files, 'file')}: {result}"


def _is_below(mutant: Mutant, key: str) -> bool:
    return f"{mutant.key}.".startswith(f"{key}.")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def configured(
    file: GoldenFile, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> Config:
    """The config that a file asks for, under `files` and `overrides`.

    ConfigError for one that cannot be read, or whose prompts no golden file has.
    """
    try:
        config = resolve(
            files=(*file.config_files, *files), overrides=(*file.overrides, *overrides)
        )
    except ConfigError as error:
        if not (file.config_files or file.overrides):
            raise
        raise ConfigError(f"{file.path}: {error}") from None
    if config.transcript not in (PYTHON.name, *CHATS):
        raise ConfigError(
            f"{file.path}: transcript = {config.transcript!r} has no effect here: golden files are "
            f"written with >>> and ..., and a reward is given the same lines in every format; "
            f"leave it out, or give --set transcript={PYTHON.name}"
        )
    return config


def reward_beside(
    path: Path, config: RewardConfig, *, is_named: bool, loads_code: bool
) -> RewardFunction:
    """The function of `config`; a module that lies beside `path` comes before any other.

    A file may come from elsewhere. By itself it can load only such a module, and only with
    `loads_code`, which means that somebody asked to run the file's own reward. With `is_named` a
    person named the function, and it may lie anywhere. A name without a colon is an installed entry
    point, not the file's code. Raises ConfigError for all else.
    """
    module, colon, _ = config.function.partition(":")
    if not colon or config.function == _OURS:
        return load_reward(config)
    name, folder = module.partition(".")[0], path.parent.resolve()
    spec = _find(name, folder)
    if not is_named and (spec is None or not loads_code):
        what = "code of its own" if spec else "code that does not lie next to it"
        raise ConfigError(
            f"{path.name} names {what}; if you trust it: --set reward.function={config.function}"
        )
    if spec is not None:
        _load(name, spec, folder)
    return load_reward(config)


def _find(name: str, folder: Path) -> ModuleSpec | None:
    """A module or a package of that name in a folder; None where there is none. Runs nothing."""
    if not name.isidentifier():
        return None
    importlib.invalidate_caches()  # its file may be younger than the last look at the folder
    spec = PathFinder.find_spec(name, [str(folder)])
    return spec if spec is not None and spec.origin is not None else None


def _load(name: str, spec: ModuleSpec, folder: Path) -> None:
    """Put it among the loaded modules, where `load_reward` finds it first."""
    assert spec.loader is not None, "it has a file"
    known = getattr(sys.modules.get(name), "__spec__", None)
    if known is not None and known.origin != spec.origin:
        raise ConfigError(
            f"two modules are called {name!r}: {spec.origin} and {known.origin or 'a built-in'}; "
            f"rename the first"
        )
    if name in sys.modules:
        return
    search_too(folder)  # for its own imports
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
