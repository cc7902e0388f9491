"""Why a line was pushed up or down: the ledger of what a run stored, or of golden transcripts.

    .jsonl or .repl -> scored -> advantages of the update -> [(where, Ledger)] by group

The advantages are those of the update itself. Knows no screens and no flags.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from repl_rl.config.resolve import user_settings
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.credit.ledger import Ledger, ledgers
from repl_rl.errors import ConfigError
from repl_rl.golden.suites import Suite
from repl_rl.golden.text import SUFFIX
from repl_rl.replay.annotated import annotate
from repl_rl.replay.scene import config_of, refuse_foreign_code
from repl_rl.runs.trajectory_file import Place, places

Group = list[tuple[str, Ledger]]
"""Siblings: (file and number, ledger) of each."""


def explain(
    path: Path, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> list[Group]:
    """Every trajectory of a file.

    The group with the largest gradient comes first, and in it the trajectory with the largest
    share: many groups of a run have no gradient. The transcripts of a golden file are one group, in
    their own order.

    Stored trajectories keep their stored rewards; advantages follow the config of the run, then
    `files` and `overrides`. A golden transcript is scored here. Raises ConfigError for what cannot
    be read.
    """
    if path.suffix == SUFFIX:
        return [_golden(path, files, overrides)]
    members: defaultdict[object, list[Place]] = defaultdict(list)
    for place in places(path):
        members[place.group].append(place)
    found = [*itertools.chain(*members.values())]
    if not found:
        raise ConfigError(f"{str(path)!r} holds no whole trajectory")
    items = annotate(found, config_of(found[0], files=files, overrides=overrides).grpo)
    groups = [
        [(item.id, item.ledger) for item in itertools.islice(items, len(same))]
        for same in members.values()
    ]
    for group in groups:
        group.sort(key=lambda row: row[1].mass, reverse=True)
    return sorted(groups, key=mass, reverse=True)


def mass(group: Group) -> float:
    """The mass of its gradient; 0 where all siblings earned the same."""
    return math.fsum(ledger.mass for _, ledger in group)


def _golden(path: Path, files: Sequence[Path], overrides: Sequence[str]) -> Group:
    suite = Suite.open(path, files=files, overrides=overrides)
    refuse_foreign_code(suite.config, user_settings(files=files, overrides=overrides), path)
    played = suite.played()
    scored = [suite.scored(one) for one in played]
    made = ledgers(scored, advantage_rows(scored, load_credit(suite.config.grpo)))
    names = (f"{path.name}:{one.golden.number}" for one in played)
    return list(zip(names, made, strict=True))
