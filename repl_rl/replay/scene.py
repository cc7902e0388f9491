"""What it takes to run the lines of a stored trajectory again, and how here differs from there.

    Place -> Scene (config, setup, transcript format, notes)

Knows files and settings. Does not know kernels.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repl_rl.config import Config, GradingConfig, SamplingConfig, SandboxConfig
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import installed_versions, read_versions
from repl_rl.runs.trajectory_file import Place
from repl_rl.runs.trust import is_trusted
from repl_rl.settings import resolve, to_toml, user_settings
from repl_rl.tasks.base import load_task, make_setup
from repl_rl.transcript.conventions import load_repl
from repl_rl.transcript.format import TranscriptFormat
from repl_rl.types import Origin
from repl_sandbox.render import clean
from repl_sandbox.types import Isolation

_LINE_SAMPLER = SamplingConfig().sampler
_LIMITED = (
    *("line_cpu_s", "line_wall_s", "grace_s", "kernel_cpu_s", "memory_mib"),
    *("max_output_chars", "standby"),
)
_TIMES_USUAL = 8
"""What a file from elsewhere may ask for of these, in defaults."""
_MAX_SOURCES, _MAX_SETUP_CHARS = 64, 1 << 16
"""Of the setup of a file from elsewhere. Each source may take as long as a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The stage for the trajectories of one file."""

    config: Config
    setup: tuple[str, ...]
    fmt: TranscriptFormat
    origin: Origin | None
    notes: tuple[str, ...]
    """How this machine differs from the one they were made on, a sentence each."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what they were made with, and `isolation`; empty where it is not known."""
    is_known: bool = True
    """Whether `setup` is the task's, or that of a run made here. Kernels run any other behind
    all of their walls, for the last of these stand only once they are born."""

    @property
    def born_with(self) -> tuple[str, ...]:
        """What of `setup` a kernel has run when it comes out of a pool."""
        return self.setup if self.is_known else self.fmt.setup

    @property
    def run_first(self) -> tuple[str, ...]:
        """The rest of it."""
        if self.is_known:
            return ()
        return tuple(source for source in self.setup if source not in self.fmt.setup)

    def first_number(self, prompt: str) -> int:
        """Of the statement that a prompt asks for; 1 where prompts have no numbers."""
        # Digits are few: a hostile file may hold a number that `int` refuses for its length.
        shown = re.escape(self.fmt.primary).replace(r"\{n\}", r"(\d{1,9})")
        found = re.search(rf"{shown}\Z", prompt)
        return int(found[1]) if found and found.groups() else 1


def make_scene(place: Place, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()) -> Scene:
    """The stage for a trajectory; its config as of `config_of`.

    Raises ConfigError where it cannot be told, or where lines are not lines of a REPL.
    """
    origin = place.origin
    config = config_of(place, files=files, overrides=overrides)
    if config.sampling.sampler != _LINE_SAMPLER:
        raise ConfigError(
            f"{place.path.name} was made by the sampler {config.sampling.sampler!r}; only lines of "
            f"{_LINE_SAMPLER} can be run again"
        )
    fmt = load_repl(config.transcript)
    setup, is_known = _setup(place, config, fmt)
    versions = (
        {**origin.versions, "isolation": origin.isolation}
        if origin is not None
        else read_versions(_beside(place).parent)
    )
    says_how = origin is not None or _beside(place).is_file()
    notes = _differences(versions, config) if says_how else _unknown(place.path)
    return Scene(
        config=config,
        setup=setup,
        fmt=fmt,
        origin=origin,
        versions=versions,
        notes=tuple(notes),
        is_known=is_known,
    )


def _setup(place: Place, config: Config, fmt: TranscriptFormat) -> tuple[tuple[str, ...], bool]:
    """(what kernels ran before the first line, whether it is the task's or was run here before).

    ConfigError where neither the file nor an installed task says it.
    """
    if place.origin is not None and is_trusted(place.origin):
        return place.origin.setup, True
    try:
        here_it_is = make_setup(load_task(config.task)[0], fmt)
    except ConfigError:
        if place.origin is None:
            raise
        return _bounded_setup(place.origin.setup, place.path), False
    if place.origin is None or place.origin.setup == here_it_is:
        return here_it_is, True
    return _bounded_setup(place.origin.setup, place.path), False


def _bounded_setup(setup: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """ConfigError for more than a task has: it runs before the first line of every trajectory."""
    num_chars = sum(map(len, setup))
    if len(setup) > _MAX_SOURCES or num_chars > _MAX_SETUP_CHARS:
        raise ConfigError(
            f"{path.name} has kernels run {len(setup):,} sources of {num_chars:,} characters; "
            f"expected at most {_MAX_SOURCES} of {_MAX_SETUP_CHARS:,} in what was not run here"
        )
    return setup


def config_of(place: Place, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()) -> Config:
    """The config that a trajectory was made with, under `files` and `overrides`.

    A file may come from elsewhere, so none takes walls down. Unless this config was run here, see
    `trust`, it also asks for no more than a few times the usual limits, and names no code of its
    own and no module to load that a person does not name, too.
    Raises ConfigError, which names the file, for what cannot be read or is not to be had.
    """
    is_own = place.origin is not None and is_trusted(place.origin)
    saved = place.origin.config if place.origin is not None else _read(_beside(place))
    made_with = _behind_walls(_made_with(saved, place.path))
    base = to_toml(made_with if is_own else _bounded(made_with)) if saved else ""
    config = resolve(saved=base, files=files, overrides=overrides)
    if not is_own:
        _refuse_foreign_code(config, user_settings(files=files, overrides=overrides), place.path)
    return config


def _refuse_foreign_code(config: Config, told_here: Mapping[str, Any], path: Path) -> None:
    """ConfigError for what would be imported because a file says so, and nobody here."""
    for key, name in _names(config).items():
        section, _, leaf = key.rpartition(".")
        is_told = leaf in (told_here.get(section, {}) if section else told_here)
        if ":" in name and name != _OUR_NAMES[key] and not is_told:
            raise ConfigError(
                f"{path.name} names code of its own, {key} = {name!r}; if you trust it: "
                f"--set {key}={name}"
            )
    foreign = set(config.sandbox.preload) - {*Config().sandbox.preload}
    if foreign and "preload" not in told_here.get("sandbox", {}):
        names = json.dumps(config.sandbox.preload)
        raise ConfigError(
            f"{path.name} has kernels load {', '.join(map(repr, sorted(foreign)))}; if you trust "
            f"it: --set 'sandbox.preload={names}'"
        )


def _names(config: Config) -> dict[str, str]:
    """What a config may have imported, by key."""
    return {
        "task": config.task,
        "transcript": config.transcript,
        "sampling.sampler": config.sampling.sampler,
        "reward.function": config.reward.function,
    }


_OUR_NAMES = _names(Config())


def _beside(place: Place) -> Path:
    """The config of the run that its file lies in, if it lies in one."""
    return (place.run or place.path.absolute().parent) / "config.toml"


def _read(path: Path) -> str:
    try:
        return path.read_text() if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None


def _made_with(saved: str, path: Path) -> Config:
    """ConfigError, which names the file, for what is no config."""
    try:
        return resolve(saved=saved)
    except ConfigError as error:
        raise ConfigError(f"the config that {str(path)!r} was made with: {error}") from None


def _behind_walls(config: Config) -> Config:
    """The same, but only who sits here takes walls down: a config that was run here can be guessed,
    and the lines that come with it are anybody's."""
    if config.sandbox.isolation is not Isolation.NONE:
        return config
    return replace(config, sandbox=replace(config.sandbox, isolation=Isolation.AUTO))


def _bounded(config: Config) -> Config:
    """A config without what only who sits here may ask for.

    It runs no sources in the fork server, which has no walls, and stays within a few times the
    usual limits: a replay is to end.
    """
    usual, asked = SandboxConfig(), config.sandbox
    limits = {
        name: min(getattr(asked, name), _TIMES_USUAL * getattr(usual, name)) for name in _LIMITED
    }
    sandbox = replace(asked, warmup=None, **limits)
    return replace(config, sandbox=sandbox, grading=GradingConfig())


def _differences(versions: Mapping[str, str], config: Config) -> Iterator[str]:
    """What kernels would find to be another version than the recorded ones did."""
    found = installed_versions(config.sandbox.preload)
    for name in ("python", "repl_rl", *_seen_by_kernels(config)):
        was, is_here = versions.get(name), found[name]
        if was != is_here:
            shown = "unknown" if was is None else _one_row(was)
            yield f"made with {name} {shown}, here it is {is_here}: outputs may differ"


def _seen_by_kernels(config: Config) -> Iterator[str]:
    """Distributions of the modules that kernels are born with."""
    known = importlib.metadata.packages_distributions()
    for module in config.sandbox.preload:
        yield from known.get(module.partition(".")[0], ())[:1]


def _unknown(path: Path) -> Iterator[str]:
    yield (
        f"{path.name} does not say how it was made: kernels and rewards are the default ones; "
        f"--config FILE names others"
    )


def other_walls(origin: Origin | None, walls: str) -> list[str]:
    """A sentence where the walls around kernels here are not those that were recorded."""
    # Older files have another name for the level, before the colon.
    if origin is None or origin.isolation.rpartition(": ")[2] == walls.rpartition(": ")[2]:
        return []
    return [f"made in kernels of {_one_row(origin.isolation)!r}, here they are {walls!r}"]


def _one_row(text: str) -> str:
    return " ".join(clean(text).split())
