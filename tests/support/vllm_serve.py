"""A real vLLM server on loopback, as small as it gets: what the tests of its engine talk to."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documents import ROOT, commands
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.testing.under_test import EngineOptions

START_S = 300.0
SETTINGS = (
    *("--max-model-len", "512", "--max-num-batched-tokens", "512", "--max-num-seqs", "16"),
    *("--kv-cache-memory-bytes", str(16 << 20), "--block-size", "32"),
    *("--dtype", "float32"),
    "--skip-tokenizer-init",
    "--enforce-eager",
    # The generator of a seeded line cannot be wound back, which chunks ask for on a CPU.
    "--no-enable-chunked-prefill",
    "--enable-scale-out",
)
PROCESSED = ("--logprobs-mode", "processed_logprobs")
LOADER = ("--worker-extension-cls", "repl_rl.engines.vllm_worker.PolicyLoader")
ADAPTERS = ("--enable-lora", "--max-loras", "3")
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",  # else log-probabilities are compiled, with a C++ compiler
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
}
PRIVATE = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
"""Nothing of a test is told to anybody."""


class Server:
    """A server that was started and not waited for.

    `words` start it, short of the address where it is to listen.
    """

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        port: int | None = None,
    ) -> None:
        self.port = port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*words, "--host", "127.0.0.1", "--port", str(port)],
                env={**os.environ, **PRIVATE, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> str:
        """Its address, when it answers."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(self.url + "/health", timeout=2).close()
                return self.url
            time.sleep(0.2)
        raise AssertionError(f"the server did not start:\n{self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        """End it and its workers at once; again, nothing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


def small_server(
    model: Path,
    log: Path,
    *,
    flags: Sequence[str] = (*PROCESSED, *LOADER),
    port: int | None = None,
) -> Server:
    """Server as quick to start and as small as it gets; on a free port unless one is given."""
    # By its module: the console script asks for metadata that builds for CPUs lack.
    command = [sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"]
    words = [*command, "--model", str(model), *SETTINGS, *flags]
    return Server(words, log, environment=ENVIRONMENT, port=port)


def documented_server(model: Path, log: Path) -> Server:
    """Server that docs/engines.md describes for a person without a GPU, and for adapters."""
    (shown,) = (one for one in commands(ROOT / "docs" / "engines.md") if one.words[0] == "python")
    given = {"python": sys.executable, "MODEL": str(model)}
    words = [given.get(word, word) for word in shown.words]
    environment = {**dict(shown.environment), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    return Server([*words, *ADAPTERS], log, environment=environment)


_KEPT: dict[Path, Server] = {}
"""Servers of the contract by the folder of their model, until the end of the tests."""


def open_vllm_server(model: Any, folder: Path, options: EngineOptions) -> VLLMServerEngine:
    """An engine whose server has the weights of `model`; a server is started once for a folder."""
    if folder not in _KEPT:
        _KEPT[folder] = small_server(folder, folder.with_suffix(".log"))
        atexit.register(_KEPT[folder].kill)
    engine = VLLMServerEngine(
        [_KEPT[folder].wait()],
        newline_ids=options.newline_ids,
        eos_ids=options.eos_ids,
        vocabulary=model.config.vocab_size,
        row_tokens=options.context_tokens,
        temperature=options.temperature,
        forbidden_ids=options.forbidden_ids,
    )
    # In a thread: whoever opens an engine may be inside an event loop of its own.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, engine.sync(model.named_parameters(), version=0)).result()
    return engine


@dataclass(frozen=True)
class Farm:
    folder: Path
    """The model that all serve."""
    urls: list[str]
    """Two replicas."""
    raw_url: str
    """One that gives log-probabilities before temperature, and knows nothing of our weights."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(*servers: Server) -> Iterator[list[str]]:
    """Addresses of servers, which are ended after the block."""
    try:
        yield [server.wait() for server in servers]
    finally:
        for server in servers:
            server.kill()
