"""Scene of a stored trajectory: what its rerun takes, and how this machine differs from its own.

    StoredTrajectory -> Scene (config, setup, transcript format, notes)

The text of each token is found without a model, in what a run keeps of its tokenizer.

Knows files and settings. Does not know kernels.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from repl_rl.base.terminal import one_row
from repl_rl.config import Config
from repl_rl.config.resolve import refuse_foreign_code, resolve, to_toml, user_settings
from repl_rl.config.sections import GradingConfig, SamplingConfig, SandboxConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Origin, Problem, Trajectory
from repl_rl.runs.folder import (
    TOKENIZER,
    distributions_of,
    installed_versions,
    is_trusted,
    read_versions,
)
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.tasks.base import load_task, make_setup
from repl_rl.transcript.conventions import load_repl
from repl_rl.transcript.format import TranscriptFormat, source_of, spans, text_of
from repl_rl.transcript.tokens import ByteCodec, Decode
from repl_sandbox.types import Isolation

_LINE_SAMPLER = SamplingConfig().sampler
_LIMITED = (
    *("line_cpu_s", "line_wall_s", "grace_s", "kernel_cpu_s", "memory_mib"),
    *("max_output_chars", "standby"),
)
_TIMES_USUAL = 8
"""A file from elsewhere may ask for this many times the default of each."""
_MAX_SOURCES, _MAX_SETUP_CHARS = 64, 1 << 16
"""Most sources and characters of a setup from elsewhere. Each source may take as long as a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that the trajectories of one file run with."""

    config: Config
    setup: tuple[str, ...]
    fmt: TranscriptFormat
    origin: Origin | None
    notes: tuple[str, ...]
    """Differences of this machine from the one they were made on, a sentence each."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions that they were made with, and `isolation`; empty where these are not known."""
    is_known: bool = True
    """True where `setup` is the task's, or that of a run made here. Kernels run any other setup
    behind all of their walls, the last of which stand only once a kernel has started."""

    @property
    def born_with(self) -> tuple[str, ...]:
        """The part of `setup` that a kernel has run when it comes out of a pool."""
        return self.setup if self.is_known else self.fmt.setup

    @property
    def run_first(self) -> tuple[str, ...]:
        """The rest of `setup`."""
        if self.is_known:
            return ()
        return tuple(source for source in self.setup if source not in self.fmt.setup)

    def setup_of(self, problem: Problem) -> tuple[str, ...]:
        """All that a kernel has run before the first line of a trajectory of `problem`."""
        return (*self.setup, *problem.setup)


def make_scene(
    stored: StoredTrajectory, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> Scene:
    """Make the scene of a trajectory, under the config of `config_of`.

    Raises ConfigError where that is not known, or where its lines are not lines of a REPL.
    """
    origin = stored.origin
    config = config_of(stored, files=files, overrides=overrides)
    if config.sampling.sampler != _LINE_SAMPLER:
        raise ConfigError(
            f"{stored.path.name} was made by the sampler {config.sampling.sampler!r}; only lines "
            f"of {_LINE_SAMPLER} can be run again"
        )
    fmt = load_repl(config.transcript)
    setup, is_known = _setup(stored, config, fmt)
    versions = (
        {**origin.versions, "isolation": origin.isolation}
        if origin is not None
        else read_versions(_beside(stored).parent)
    )
    says_how = origin is not None or _beside(stored).is_file()
    notes = _differences(versions, config) if says_how else _unknown(stored.path)
    return Scene(
        config=config,
        setup=setup,
        fmt=fmt,
        origin=origin,
        versions=versions,
        notes=tuple(notes),
        is_known=is_known,
    )


def _setup(
    stored: StoredTrajectory, config: Config, fmt: TranscriptFormat
) -> tuple[tuple[str, ...], bool]:
    """(what kernels ran before the first line, whether it is the task's or was run here before).

    Raises ConfigError where neither the file nor an installed task names it.
    """
    if stored.origin is not None and is_trusted(stored.origin):
        return stored.origin.setup, True
    try:
        here_it_is = make_setup(load_task(config.task.name, config.data)[0], fmt)
    except ConfigError:
        if stored.origin is None:
            raise
        check_setup(stored.origin.setup, stored.path.name)
        return stored.origin.setup, False
    if stored.origin is None or stored.origin.setup == here_it_is:
        return here_it_is, True
    check_setup(stored.origin.setup, stored.path.name)
    return stored.origin.setup, False


def check_setup(setup: Sequence[str], name: str) -> None:
    """ConfigError for a setup that is longer than a task's: every trajectory begins with it."""
    num_chars = sum(map(len, setup))
    if len(setup) > _MAX_SOURCES or num_chars > _MAX_SETUP_CHARS:
        raise ConfigError(
            f"{name} has kernels run {len(setup):,} sources of {num_chars:,} characters; "
            f"expected at most {_MAX_SOURCES} of {_MAX_SETUP_CHARS:,} in a file that was not made "
            f"here"
        )


def config_of(
    stored: StoredTrajectory, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> Config:
    """The config that a trajectory was made with, under `files` and `overrides`.

    A file may come from elsewhere, so none takes walls down. Unless this config was run here (see
    `trust`), it also stays within a few times the usual limits, and code of its own and modules to
    load are refused unless a person names them, too. Raises ConfigError, which names the file, for
    what cannot be read or is not there.
    """
    is_own = stored.origin is not None and is_trusted(stored.origin)
    saved = stored.origin.config if stored.origin is not None else _read(_beside(stored))
    made_with = _behind_walls(_made_with(saved, stored.path))
    base = to_toml(made_with if is_own else _bounded(made_with)) if saved else ""
    config = resolve(saved=base, files=files, overrides=overrides)
    if not is_own:
        given = user_settings(files=files, overrides=overrides)
        refuse_foreign_code(config, given, stored.path.name)
    return config


def _beside(stored: StoredTrajectory) -> Path:
    """The config of the run that its file lies in, if it lies in one."""
    return (stored.run or stored.path.absolute().parent) / "config.toml"


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
    """Return the config with walls, which only a person here takes down.

    Anybody can guess a config that was run here, and send lines of their own with it.
    """
    if config.sandbox.isolation is not Isolation.NONE:
        return config
    return replace(config, sandbox=replace(config.sandbox, isolation=Isolation.AUTO))


def _bounded(config: Config) -> Config:
    """A config without what only a person here may ask for.

    It runs no sources in the fork server, which has no walls, and stays within a few times the
    usual limits, so that a replay ends.
    """
    usual, requested = SandboxConfig(), config.sandbox
    limits = {
        name: min(getattr(requested, name), _TIMES_USUAL * getattr(usual, name))
        for name in _LIMITED
    }
    sandbox = replace(requested, warmup=None, **limits)
    return replace(config, sandbox=sandbox, grading=GradingConfig())


def _differences(versions: Mapping[str, str], config: Config) -> Iterator[str]:
    """A sentence for each package that kernels here find in another version."""
    installed = installed_versions(config.sandbox.preload)
    for name in ("python", "repl_rl", *distributions_of(config.sandbox.preload)):
        was, is_here = versions.get(name), installed[name]
        if was != is_here:
            before = "unknown" if was is None else one_row(was)
            yield f"made with {name} {before}, here it is {is_here}: outputs may differ"


def _unknown(path: Path) -> Iterator[str]:
    yield (
        f"{path.name} does not say how it was made: kernels and rewards are the default ones; "
        f"--config FILE names others"
    )


def other_walls(origin: Origin | None, walls: str) -> list[str]:
    """A sentence where the walls around kernels here are not the recorded ones."""
    # Older files have another name for the level, before the colon.
    if origin is None or origin.isolation.rpartition(": ")[2] == walls.rpartition(": ")[2]:
        return []
    return [f"made in kernels of {one_row(origin.isolation)!r}, here they are {walls!r}"]


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Yield a file beside `path`, which takes the place of `path` at the end or never.

    ASCII: any other character becomes an XML reference. Raises ConfigError where `path` cannot be
    written, or is not a file.
    """
    with _as_config_error(path):
        target = path.resolve()
        if target.is_symlink():  # Python 3.13 does not report a ring of links
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.exists() and not target.is_file():
            raise ConfigError(f"cannot write to {str(path)!r}: it is a folder or device")
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        # "x": an existing file of its name may be a link to anything.
        file = part.open("x", encoding="ascii", errors="xmlcharrefreplace", newline="\n")
    try:
        yield file
        with _as_config_error(path):
            file.close()
            part.replace(target)
    finally:
        with contextlib.suppress(OSError):  # the file is thrown away
            file.close()
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _as_config_error(path: Path) -> Iterator[None]:
    """ConfigError where the system refuses."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: a ring of links
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot write to {str(path)!r}: {reason}; name a file in a folder that exists and "
            f"that you may write to"
        ) from None


def check_replaceable(path: Path, suffixes: Sequence[str]) -> None:
    """ConfigError where `path` is an existing file without one of these suffixes."""
    target = Path(os.path.realpath(path))
    if os.path.isfile(target) and target.suffix.lower() not in suffixes:
        raise ConfigError(f"{str(path)!r} is there and is no {suffixes[0]} file; name another file")


def check_apart(path: Path, sources: Iterable[Path]) -> None:
    """ConfigError where a file that is read would be written over."""
    for source in sources:
        try:
            is_same = path.samefile(source)
        except OSError:  # it is not there yet, or its name is too long
            continue
        if is_same:
            raise ConfigError(f"{str(path)!r} holds the trajectories themselves; name another file")


_FILE = "tokenizer.json"
_MAX_DECODER = 4096
"""Characters of a decoder, as JSON: ten times what a usual one has."""
_MAX_CHARS = 1 << 26
"""Most characters of the text of one line or observation, if all its tokens were as long as the
longest."""
_NEWLINES = ("\u010a", "<0x0A>", "\n")
"""A newline in vocabularies of bytes, with bytes to fall back on, and of characters."""
_OPEN_TOKENS = 32
"""Number of tokens in a row that may end inside a character. Bytes that are no UTF-8, and U+FFFD
itself, look like an incomplete character for ever."""


def find_decode(stored: StoredTrajectory) -> Decode | None:
    """The function that turns a trajectory's ids into text; None where it is not at hand."""
    if stored.origin is not None and stored.origin.tokenizer is None:
        return ByteCodec().decode
    for folder in _folders(stored):
        if (decode := read_decode(folder / _FILE)) is not None:
            return decode
    return None


def _folders(stored: StoredTrajectory) -> Iterator[Path]:
    """Yield what the run keeps, then a model's folder, which may hold another model by now."""
    if stored.run is not None:
        yield from (stored.run / TOKENIZER, stored.run / "checkpoints" / "final")
    if stored.origin is not None and stored.origin.tokenizer is not None:
        yield Path(stored.origin.tokenizer)
    elif stored.run is not None and (policy := read_versions(stored.run).get("policy")):
        yield Path(policy)


def read_decode(path: Path) -> Decode | None:
    """The decoder in a file; None where there is no such file, or no tokenizer in it.

    The file may be anybody's, so None as well for a decoder that holds a regular expression, which
    may take for ever, or that is longer than any usual one. Decoding raises ConfigError where the
    library panics, or where the text would fill the memory.
    """
    from tokenizers import Tokenizer  # of an extra; a text of bytes is read without it

    with _panics_as_config_errors(path):
        try:
            if not path.is_file() or (content := _what_decodes(path.read_text("utf-8"))) is None:
                return None
            tokenizer = Tokenizer.from_str(content)
        # The library raises nothing narrower for a file that is cut or foreign.
        except Exception:  # noqa: BLE001
            return None
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    # Behind a newline, as `tokens.Context` does: some decoders strip a space from what comes first.
    before = [i for i in map(tokenizer.token_to_id, _NEWLINES) if i is not None][:1]

    def decode(ids: Sequence[int]) -> str:
        if len(ids) * longest > _MAX_CHARS:
            raise ConfigError(f"{len(ids):,} tokens of up to {longest:,} characters: {str(path)!r}")
        with _panics_as_config_errors(path):
            text = tokenizer.decode([*before, *ids], skip_special_tokens=False)
            return text[len(tokenizer.decode(before, skip_special_tokens=False)) :]

    return decode


def _what_decodes(content: str) -> str | None:
    """A tokenizer without the parts that only encode; None where its decoder must not run."""
    parts = json.loads(content)
    decoder = json.dumps(parts.get("decoder"))
    # A quote within a text has a backslash before it: here it is a key.
    if len(decoder) > _MAX_DECODER or '"Regex"' in decoder:
        return None
    only_encode = ("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding")
    return json.dumps(parts | dict.fromkeys(only_encode))


@contextlib.contextmanager
def _panics_as_config_errors(path: Path) -> Iterator[None]:
    """ConfigError where the library panics: its panic is no Exception and cannot be imported."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ConfigError(
            f"the tokenizer {str(path)!r} cannot be used: {error}; without that file tokens are "
            f"shown without their texts"
        ) from None


def token_texts(trajectory: Trajectory, decode: Decode) -> tuple[str, ...] | None:
    """Return the text that each token adds to the completion, [T]; None for another vocabulary.

    A token that ends inside a character adds nothing, the one that completes it adds it whole. The
    texts of a line's tokens join to its source, perhaps with that of a token that ends its turn.
    """
    texts: list[str] = []
    for span in spans(trajectory):
        ids = trajectory.completion_ids[span.start : span.stop]
        whole = decode(ids)
        if span.is_sampled and text_of(source_of(trajectory, span), ids, decode) is None:
            return None
        cut = list(_cut(ids, decode))
        # A vocabulary may join tokens in a way that no cut between them shows.
        texts += cut if "".join(cut) == whole else [*[""] * (len(ids) - 1), whole]
    return tuple(texts)


def _cut(ids: Sequence[int], decode: Decode) -> Iterator[str]:
    # With the tokens of the text before: some vocabularies drop the space that a text begins with.
    before, start, known = 0, 0, ""
    for stop in range(1, len(ids) + 1):
        text = decode(ids[before:stop])
        may_go_on = text.endswith("\ufffd") and stop < len(ids)
        if may_go_on and stop - start < _OPEN_TOKENS:
            yield ""
            continue
        yield text.removeprefix(known)
        before, start = start, stop
        known = decode(ids[before:start])
