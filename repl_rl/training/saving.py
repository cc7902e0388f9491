"""A checkpoint that is whole or has no name, though several processes write it.

    all write aside -> the first marks it COMPLETE and gives it its name

Knows folders, and the random states that a checkpoint holds. Does not know what else is in one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy
import torch

from repl_rl.disk import written_aside
from repl_rl.errors import DivergedError, RankError, StorageError
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


class RandomState:
    """The generators that an update may draw from, as they are when it is made."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = numpy.random.get_state()  # what transformers keeps
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self) -> None:
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        torch.cuda.set_rng_state_all(self._cuda)


class KeepsLastStep(Protocol):
    """A trainer that can write a checkpoint of its last whole step, between two of its own."""

    def save_last_step(self) -> None: ...


@contextmanager
def last_step_kept(trainer: KeepsLastStep, ranks: Ranks) -> Iterator[None]:
    """However the block fails, a checkpoint of the last whole step is there if one can be made."""
    try:
        yield
    except (DivergedError, RankError, StorageError):
        raise  # there is nothing left to keep, nobody to keep it with, or nowhere
    except BaseException as error:
        # All ranks stop at an interrupt. At a failure of one the others wait for it elsewhere.
        if isinstance(error, KeyboardInterrupt) or not ranks.are_several:
            trainer.save_last_step()
        raise


class Position(NamedTuple):
    """What a checkpoint holds that the next step's rollouts change."""

    random: RandomState
    num_tokens: int
