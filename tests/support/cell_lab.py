"""Run both attack tables in sealed IPython kernels and print what came of it, as JSON.

`python cell_lab.py LEVEL UID`, with what came of the canary's probes. The lines of an attack are
cells of a kernel of its own. A victim of the same fork server is beside it, files that nothing but
the walls protects, and a port that nobody should find. Here an interrupt comes after a time by the
clock, since a client's cells have no deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient

from attack_lab import Outcome, is_untouched, make_decoy
from attacks import ATTACKS, NUMBERS, Attack
from cell_attacks import CELL_ATTACKS
from nobody import become
from repl_sandbox.host.fork_server_client import ForkServerClient
from repl_sandbox.host.pool import PROBES
from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.host.supervisor import Process
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.front_ends import address
from repl_sandbox.types import SHELL, Isolation, socket_path
from repl_sandbox.walls import bubblewrap

AT_ONCE = 4
BEGIN_S, INTERRUPT_S, GRACE_S, PATIENCE_S = 3.0, 0.5, 1.0, 60.0
"""Until a kernel says that it has begun with a cell, from there to an interrupt, from there to the
end, and for a cell that ends by itself."""
UNTIMELY = {"timeout", "killed"}
TABLES = (*ATTACKS, *CELL_ATTACKS)


class CellKernel:
    """A client of one sealed IPython kernel."""

    def __init__(self, started: StartedKernel) -> None:
        self._started = started
        self._process = Process(started.pidfd)
        self._client = AsyncKernelClient()
        self._client.load_connection_info({**address(started.folder), "key": started.key})
        self._client.start_channels()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def folder(self) -> Path:
        return self._started.folder

    async def run(
        self, cell: str, *, patience_s: float = INTERRUPT_S, grace_s: float = GRACE_S
    ) -> tuple[str, str]:
        """(how it ended, what it printed or is worth). A comm that it opens is called at once."""
        said: list[str] = []
        began = asyncio.Event()

        def hear(message: dict[str, Any]) -> None:
            began.set()
            said.append(_text(message))
            if message["msg_type"] == "comm_open":
                called = {"comm_id": message["content"]["comm_id"], "data": {}}
                self._client.shell_channel.send(self._client.session.msg("comm_msg", called))

        asked = asyncio.create_task(
            self._client.execute_interactive(cell, allow_stdin=False, output_hook=hear)
        )
        beginning = asyncio.create_task(began.wait())
        await asyncio.wait([asked, beginning], timeout=BEGIN_S, return_when=asyncio.FIRST_COMPLETED)
        beginning.cancel()
        is_late = not await self._wait(asked, patience_s)
        if is_late:
            self._send(signal.SIGINT)
            if not await self._wait(asked, grace_s):
                self._send(signal.SIGKILL)
                asked.cancel()
                return "killed", "".join(said)
        if not asked.done():
            asked.cancel()
            return "died", "".join(said)
        if asked.exception() is not None:  # what it said was no message
            return "died", "".join(said)
        content = asked.result()["content"]
        if is_late and content["status"] == "error" and content["ename"] == "KeyboardInterrupt":
            return "timeout", "".join(said)
        end = "ok" if content["status"] == "ok" else f"error:{content.get('ename')}"
        return end, "".join(said)

    def close(self) -> None:
        self._client.stop_channels()
        self._send(signal.SIGKILL)
        os.close(self._started.pidfd)

    async def _wait(self, asked: asyncio.Task[Any], seconds: float) -> bool:
        """Return whether there is an answer, or will be none, before the time is over."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            if self._started.has_ended():
                return True
            await asyncio.wait([asked], timeout=0.02)
            if asked.done():
                return True
        return False

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._started.pidfd, number)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            return str(content["text"])
        case "execute_result":
            return f"{content['data']['text/plain']}\n"
        case _:
            return ""


async def perform(attack: Attack, kernel: CellKernel, names: dict[str, object]) -> Outcome:
    *first, last = (line.format(**names) for line in attack.lines)
    for line in first:
        end, said = await kernel.run(line, patience_s=PATIENCE_S)
        if end != "ok":
            return Outcome(f"{line!r}: {end}", end, said, False)
    # IPython limits no output: what nothing else ends goes on until it is interrupted.
    # Nor does a reply come before all that was printed.
    is_flood = attack.ends == ("error:OutputLimit",)
    is_endless = is_flood or not UNTIMELY.isdisjoint(attack.ends)
    end, said = await kernel.run(
        last,
        patience_s=INTERRUPT_S if is_endless else PATIENCE_S,
        grace_s=GRACE_S if is_flood or "killed" in attack.ends else PATIENCE_S,
    )
    return Outcome(None, end, said, False)


def shared_files(runtime: Path) -> dict[str, tuple[float, int]]:
    """Files of its folder that all kernels of a fork server may see: path -> times and modes."""
    own = {kernel for kernel in runtime.iterdir() if kernel.name.startswith("k")}
    found = [path for path in runtime.rglob("*") if own.isdisjoint({path, *path.parents})]
    return {str(path): (path.stat().st_mtime, path.stat().st_mode) for path in found}


async def run(asked: str, decoy: Path, listener: socket.socket) -> dict[str, object]:
    isolation = Isolation.STRICT if asked == "strict" else Isolation.AUTO
    configuration = Configuration(isolation=isolation, memory_mib=256, packages=())
    link = await configuration.start_server()
    turns, births, checks = asyncio.Semaphore(AT_ONCE), asyncio.Lock(), asyncio.Lock()
    try:

        async def kernel() -> CellKernel:
            async with births:
                link.order(key=secrets.token_hex(16).encode(), is_console=True)
                return CellKernel(await link.next_kernel(timeout_s=PATIENCE_S, is_console=True))

        victim = await kernel()
        await victim.run("state = 'intact'")
        names = {
            "decoy": str(decoy),
            "folder": str(link.runtime),
            "victim": victim.pid,
            "door": str(socket_path(victim.folder, SHELL)),
            "port": listener.getsockname()[1],
            **NUMBERS[platform.machine()],
        }

        shared = shared_files(link.runtime)

        async def one(attack: Attack) -> dict[str, object]:
            async with turns:
                attacker = await kernel()
                try:
                    outcome = asdict(await perform(attack, attacker, names))
                finally:
                    attacker.close()
            async with checks:
                answer = await victim.run("state", patience_s=PATIENCE_S)
            is_well = answer == ("ok", "'intact'\n") and is_untouched(decoy)
            is_well &= shared_files(link.runtime) == shared and not is_called(listener)
            return outcome | {"has_harmed": not is_well}

        outcomes = await asyncio.gather(*map(one, TABLES))
        canary = await kernel()
        places = {"decoy": str(decoy), "folder": str(link.runtime), "bystander": victim.pid}
        probed = {
            name: (await canary.run(source.format(**places), patience_s=PATIENCE_S))[0]
            for name, source in PROBES.items()
        }
        canary.close()
        victim.close()
    finally:
        await link.aclose()
    found = {attack.name: made for attack, made in zip(TABLES, outcomes, strict=True)}
    return {
        "level": level_of(link),
        "uid": os.geteuid(),
        "outcomes": found,
        "probed": probed,
    }


def level_of(link: ForkServerClient) -> str:
    assert link.walls is not None
    return str(link.walls.level)


def is_called(listener: socket.socket) -> bool:
    """Return whether anybody has connected."""
    with suppress(BlockingIOError):
        listener.accept()
        return True
    return False


def main(asked: str, uid: int) -> None:
    if uid != os.geteuid():
        become(uid)
    if asked == "basic":
        bubblewrap.find = lambda: None
    with tempfile.TemporaryDirectory() as home, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        print(json.dumps(asyncio.run(run(asked, make_decoy(Path(home)), listener))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
