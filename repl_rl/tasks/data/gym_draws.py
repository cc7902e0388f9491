"""Entries of a family of reasoning-gym, drawn where their order is a function of the seed.

    family, seed -> [process with the hash seed 0] -> Entry, Entry, ...

Some families walk over sets of strings or ask generators that nobody seeds, so that another process
makes other problems of the same seed. The hash seed of a process is fixed when it starts. So the
draws have a process of their own, with the environment of a grader.

Knows the library. Does not know sides, statements or verdicts.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import math
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from repl_rl.errors import ConfigError, GraderError, how_to_install
from repl_rl.grading.grader import clean_environment
from repl_rl.grading.worker import described, private_stdout

CHUNK = 500
"""Problems of one of the library's data sets, as it makes them by default."""
_NOT_SCORED = ("source_dataset", "source_index", "difficulty")
"""Metadata that no score reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GymEntry:
    """A problem as the library makes it."""

    question: str
    answer: str | None
    """None where a family knows no answer of its own."""
    metadata: str
    """Metadata that a score reads, as a literal of Python: JSON has neither tuples nor sets."""
    seed: int
    index: int
    """Index of the problem in the library."""

    def for_score(self) -> dict[str, Any]:
        """Argument for the library's `score_answer`. Raises ValueError for what is no literal."""
        metadata = ast.literal_eval(self.metadata)
        return {"question": self.question, "answer": self.answer, "metadata": metadata}


def entry_at(family: str, *, seed: int, index: int) -> GymEntry:
    """The entry, as this process makes it."""
    with contextlib.redirect_stdout(io.StringIO()):  # some print how far they are
        entry = dataset(family, seed)[index]
    scored = {key: one for key, one in entry["metadata"].items() if key not in _NOT_SCORED}
    answer = entry["answer"]
    return GymEntry(
        question=entry["question"],
        answer=None if answer is None else str(answer),
        metadata=repr(as_literal(scored)),
        seed=seed,
        index=index,
    )


def as_literal(value: Any) -> Any:
    """Return it in types that a literal spells: words and numbers of numpy become Python's."""
    if isinstance(value, Mapping):
        return {as_literal(key): as_literal(one) for key, one in value.items()}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(map(as_literal, value))
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        return as_literal(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | complex | None) else str(value)


def drawn(family: str, seed: str) -> Iterator[GymEntry]:
    """Entries without end, in an order that is a function of the seed, wherever it is asked for.

    Raises GraderError where the process ends.
    """
    command = (sys.executable, "-P", "-m", __name__, family, seed)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings of the library
        env=clean_environment(),
        start_new_session=True,
    )
    assert process.stdout is not None, "started with a pipe"
    with process, contextlib.closing(process.stdout):
        try:
            for line in process.stdout:
                row = json.loads(line)
                if "failure" in row:
                    raise GraderError(f"reasoning-gym:{family} makes no problem: {row['failure']}")
                yield GymEntry(**row)
        finally:
            process.kill()
    raise GraderError(f"reasoning-gym:{family} makes no problem: its process has ended")


def main(family: str, seed: str) -> None:
    """Write entries until nobody reads them; a pipe holds few, so hardly any are made in vain."""
    warnings.simplefilter("ignore")
    output = private_stdout()
    rng = random.Random(seed)
    with contextlib.suppress(BrokenPipeError):
        while True:
            chunk = rng.getrandbits(31)
            for index in range(CHUNK):
                _seed_all(f"{chunk}/{index}")
                try:
                    row = asdict(entry_at(family, seed=chunk, index=index))
                except Exception as error:  # noqa: BLE001 a library's generator may raise anything
                    row = {"failure": described(error)}
                output.write(json.dumps(row).encode() + b"\n")
                output.flush()


def _seed_all(seed: str) -> None:
    """Seed the generators of this process, which some families ask without seeding them."""
    import numpy

    random.seed(seed)
    numpy.random.seed(random.getrandbits(32))


@lru_cache(maxsize=8)
def dataset(family: str, seed: int) -> Any:  # of the library, which has no types
    """The library's own, of `CHUNK` entries, which are made when they are asked for."""
    return library().create_dataset(family, seed=seed, size=CHUNK)


def library() -> Any:
    """The module `reasoning_gym`. ConfigError where it is not installed."""
    try:
        import reasoning_gym
    except ModuleNotFoundError:
        raise ConfigError(
            f"reasoning-gym:... takes the package reasoning-gym, which is not installed; "
            f"{how_to_install('gym')}"
        ) from None
    return reasoning_gym


if __name__ == "__main__":
    main(*sys.argv[1:])
