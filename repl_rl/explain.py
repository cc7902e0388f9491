"""Why a line was pushed up or down: the ledger of what a run stored, or of golden transcripts.

    run folder, .jsonl or .repl -> scored -> advantages of the update -> [(where, Ledger)]

Floor 6. The advantages are those of the update itself. Knows no screens and no flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repl_rl.advantages import advantage_rows
from repl_rl.errors import ConfigError
from repl_rl.golden.bench import Stand
from repl_rl.golden.text import SUFFIX
from repl_rl.ledger import Ledger, ledgers
from repl_rl.replay.annotated import annotate
from repl_rl.replay.scene import config_of
from repl_rl.trajectory_file import last_step, places


def explain(
    path: Path, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> list[tuple[str, Ledger]]:
    """(where it stands, its ledger) of every trajectory, siblings together.

    What a run stored keeps the rewards that it was stored with; advantages follow the config of the
    run, then `files` and `overrides`. A golden transcript is scored here, and all of its file are
    siblings. Raises ConfigError for what cannot be read.
    """
    if path.suffix == SUFFIX:
        return _golden(path, files, overrides)
    found = sorted(places(last_step(path)), key=lambda place: place.glance.trajectory.group_index)
    if not found:
        raise ConfigError(f"{str(path)!r} holds no whole trajectory")
    config = config_of(found[0], files=files, overrides=overrides)
    return [(item.id, item.ledger) for item in annotate(found, config.grpo)]


def _golden(
    path: Path, files: Sequence[Path], overrides: Sequence[str]
) -> list[tuple[str, Ledger]]:
    stand = Stand.open(path, files=files, overrides=overrides)
    played = stand.played()
    scored = [stand.scored(one) for one in played]
    made = ledgers(scored, advantage_rows(scored, stand.config.grpo))
    names = (f"{path.name}:{one.golden.number}" for one in played)
    return list(zip(names, made, strict=True))
