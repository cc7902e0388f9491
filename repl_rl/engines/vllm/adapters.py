"""Adapters of one run on vLLM servers: a folder and a name for each version, none used twice.

    adapter -> NAME-vN/ in peft's form -> loaded by each server -> lines ask for the model NAME-vN

vLLM finds keys and values by the name of their adapter too, so a version never meets those of
another, and nothing is paused or reset. Decides at the first version whether servers take adapters
at all. Knows folders and names. Does not know lines, nor how whole weights are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

from repl_rl.base.concurrency import run_all
from repl_rl.base.disk import written_aside
from repl_rl.engines.base import AdaptedWeights
from repl_rl.engines.vllm.replica import (
    START_FOR_ADAPTERS,
    RefusedRequest,
    Replica,
    persist,
)
from repl_rl.errors import EngineError

_KEPT = 2
"""Versions that servers keep: the newest, and the one that lines in flight may have begun with."""

_FAREWELL_S = 2.0
"""The most that servers may take to forget a run's adapters at its end."""


class Adapters:
    """The adapters that `run` has given its servers, and those that it would have, were it told."""

    def __init__(self, replicas: Sequence[Replica], run: str) -> None:
        self._replicas = replicas
        self._run = run
        self._serial = itertools.count()
        self._sent: list[Path] = []
        """Folders of those that servers may still need, the newest last."""
        self._why_whole: str | None = None
        self.about = ""
        """Way of the adapter, and the reason if it does not go alone."""

    async def send(self, weights: AdaptedWeights, inside: Path, *, version: int) -> Path | None:
        """Have all servers sample with the adapter; its folder, `inside` of the given one.

        None where the adapter has to be sent added to the model. Raises EngineError where servers
        that took a version before do not take this one.
        """
        if self._why_whole is None and not self._sent:
            self._why_whole = weights.why_whole()
        if self._why_whole is None:
            folder = inside / f"{self._run}.{next(self._serial)}-v{version}"
            size = await asyncio.to_thread(_write, weights, folder)
            self._why_whole = await self._load(folder, version)
        if self._why_whole is not None:
            self.about = f"the servers get all weights, with the adapter added: {self._why_whole}"
            return None
        self._sent.append(folder)
        self.about = f"the servers get the adapter alone, {size / 2**20:,.1f} MiB a version"
        await self._retire()
        return folder

    async def drop_all(self) -> None:
        """Have the servers forget all, in so far as they answer soon."""
        sent, self._sent = self._sent, []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                for folder in sent:
                    await self._drop(folder)

    async def _load(self, folder: Path, version: int) -> str | None:
        """Have all servers load it. The reason of one that refuses the first; None for success."""

        async def load(replica: Replica) -> str | None:
            try:
                await persist(lambda: replica.take_adapter(folder, version=version))
            except RefusedRequest as error:
                return f"{replica.url} does not load it: {error}"
            return None

        reasons = await run_all(load, self._replicas)
        if (why := next(filter(None, reasons), None)) is None:
            return None
        if self._sent:
            raise EngineError(f"{why}; see the server's log")
        await self._drop(folder)
        return f"{why}; {START_FOR_ADAPTERS}"

    async def _retire(self) -> None:
        """Let go of what no line needs: a server reads a folder again if it had to make room."""
        for folder in self._sent[:-_KEPT]:
            if not any(replica.num_sampling[folder] for replica in self._replicas):
                await self._drop(folder)
                self._sent.remove(folder)

    async def _drop(self, folder: Path) -> None:
        await run_all(lambda one: one.drop_adapter(folder), self._replicas)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _write(weights: AdaptedWeights, folder: Path) -> int:
    """Write the folder; its bytes. StorageError where the disk refuses."""
    with written_aside(folder) as aside:
        weights.save_adapter(aside)
    return sum(file.stat().st_size for file in folder.iterdir())
