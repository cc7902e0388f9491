"""Why a line was pushed up or down: the ledger of what a run stored, or of golden transcripts.

    run folder, .jsonl or .repl -> scored -> advantages of the update -> [(where, Ledger)]

Floor 6. The advantages are those of the update itself. Knows no screens and no flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repl_rl.advantages import advantage_rows
from repl_rl.config import Config
from repl_rl.golden.bench import Stand
from repl_rl.golden.text import SUFFIX
from repl_rl.ledger import Ledger, ledgers
from repl_rl.settings import resolve
from repl_rl.store import read_trajectories, trajectory_file
from repl_rl.types import Scored


def explain(
    path: Path, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> list[tuple[str, Ledger]]:
    """(where it stands, its ledger) of every trajectory, siblings together.

    What a run stored keeps the rewards that it was stored with; advantages follow the config of the
    run, then `files` and `overrides`. A golden transcript is scored here, and all of its file are
    siblings. Raises ConfigError for what cannot be read.
    """
    read = _golden if path.suffix == SUFFIX else _stored
    config, rows = read(path, files, overrides)
    rows.sort(key=lambda row: row[1].trajectory.group_index)
    scored = [item for _, item in rows]
    made = ledgers(scored, advantage_rows(scored, config.grpo))
    return [(where, ledger) for (where, _), ledger in zip(rows, made, strict=True)]


def _golden(
    path: Path, files: Sequence[Path], overrides: Sequence[str]
) -> tuple[Config, list[tuple[str, Scored]]]:
    stand = Stand.open(path, files=files, overrides=overrides)
    rows = [(f"{path.name}:{one.golden.number}", stand.scored(one)) for one in stand.played()]
    return stand.config, rows


def _stored(
    path: Path, files: Sequence[Path], overrides: Sequence[str]
) -> tuple[Config, list[tuple[str, Scored]]]:
    path = trajectory_file(path)
    own = path.parent.parent / "config.toml"
    config = resolve(files=(*([own] if own.is_file() else []), *files), overrides=overrides)
    rows = [(f"{path.name}:{n}", item) for n, item in enumerate(read_trajectories(path), 1)]
    return config, rows
