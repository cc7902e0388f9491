"""Two machines that see each other and nothing else: network namespaces, joined by a cable."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_NETWORK = "10.77.0"


@dataclass(frozen=True)
class Host:
    """One of them."""

    address: str
    device: str
    """Its end of the cable."""
    holder: int
    """A process that lives as long as it does."""

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before a command that runs there."""
        return ("nsenter", "--net", "--target", str(self.holder))


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Within the block there are two; the test is skipped where nobody may make them."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no network namespaces without {', '.join(missing)}")
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(_host(number)) for number in (1, 2)]
        first, second = hosts
        cable = ("type", "veth", "peer", "name", second.device, "netns", str(second.holder))
        _made(("ip", "link", "add", first.device, "netns", str(first.holder), *cable))
        for host in hosts:
            _made((*host.inside, "ip", "addr", "add", f"{host.address}/24", "dev", host.device))
            for device in ("lo", host.device):
                _made((*host.inside, "ip", "link", "set", device, "up"))
        yield first, second


@contextlib.contextmanager
def _host(number: int) -> Iterator[Host]:
    own = Path("/proc/self/ns/net").readlink()
    words = ["unshare", "--net", "sh", "-c", "echo; exec sleep 3600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            holder.stdout.readline()  # it is where it should be
            there = Path(f"/proc/{holder.pid}/ns/net")
            if holder.poll() is not None or there.readlink() == own:
                pytest.skip(f"no network namespaces here: {holder.stderr.read().decode().strip()}")
            device = f"host{number}"
            yield Host(address=f"{_NETWORK}.{number}", device=device, holder=holder.pid)
        finally:
            holder.kill()


def _made(words: tuple[str, ...]) -> None:
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"no network namespaces here: {' '.join(words)}: {ended.stderr.strip()}")
