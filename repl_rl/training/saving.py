"""A checkpoint that is whole or has no name, though several processes write it.

    all write aside -> the first marks it COMPLETE and gives it its name

Knows folders. Does not know what is in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from repl_rl.disk import written_aside
from repl_rl.runs.folder import COMPLETE
from repl_rl.training.ranks import Ranks


@contextmanager
def written_by_all(folder: Path, name: str, ranks: Ranks) -> Iterator[Path]:
    """Where all ranks write the files of a checkpoint into `name`; then they are `folder / name`.

    After the block all ranks find it there. Raises StorageError where the disk refuses.
    """
    path = folder / name
    with written_aside(path) if ranks.is_first else nullcontext(path) as own:
        aside = ranks.from_first(own)
        yield aside
        ranks.barrier()
        if ranks.is_first:
            for file in (aside / name).iterdir():
                file.rename(aside / file.name)
            (aside / name).rmdir()
            (aside / COMPLETE).touch()
    ranks.barrier()
