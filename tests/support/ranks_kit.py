"""Processes of a script that train as one, started by forks of a warm interpreter."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from warm_python import Forked, WarmPython

SUPPORT = Path(__file__).parent
DEADLINE_S = 300


def run_ranks(
    num_ranks: int, python: WarmPython, folder: Path, *arguments: str, script: str = "one_rank.py"
) -> None:
    """Run a script of this folder in processes that find each other on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        **python.environment,
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(num_ranks),
    }

    def start(rank: int) -> Forked:
        with open(os.devnull) as nothing, (folder / f"{rank}.said").open("w") as said:
            return python.start(
                *(str(SUPPORT / script), *arguments),
                cwd=folder,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                streams=(nothing, said, said),
            )

    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(start(rank)) for rank in range(num_ranks)]
        for rank, process in enumerate(ranks):
            assert process.wait(DEADLINE_S) == 0, (folder / f"{rank}.said").read_text()
