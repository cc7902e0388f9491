"""Sample lines with `vllm serve` processes over HTTP: one, or several that share the work.

    line(ids) -> the replica that holds their keys and values -> SampledLine
    sync(an adapter) -> a folder -> load it under a name of its own at each replica
    sync(weights) -> a file -> pause, load, reset, resume at each replica

`VLLMServer` is what `sampling.engine = "vllm-server"` stands for; importing it loads no torch.
Tokens only: knows no text, no kernel, no reward. The servers are not ours: they are neither started
nor ended here.

A line is a pure function of its ids, its seed and the weights, so one that fails is asked for
again, of another replica if there is one. Weights travel through files that trainer and servers
both see, or through the memory of GPUs (`engines/vllm/transfer.py`). An adapter goes alone, to
servers that load it and have the weights that they started with (`engines/vllm/adapters.py`).
Tokens of cancelled lines are not counted: a server reports a line only when it has ended.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from repl_rl.base.concurrency import run_all
from repl_rl.base.disk import explained
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import (
    AdaptedWeights,
    Engine,
    EngineKind,
    Requests,
    SampledLine,
    Weights,
    check_request,
    common_options,
    fault_of_line,
    line_end,
)
from repl_rl.engines.vllm.adapters import Adapters
from repl_rl.engines.vllm.engine import MOST_FORBIDDEN, check_model, logit_bias
from repl_rl.engines.vllm.replica import (
    Replica,
    Sampled,
    Unavailable,
    check_settings,
    persist,
)
from repl_rl.engines.vllm.transfer import Transfer
from repl_rl.errors import ConfigError, EngineError, how_to_get_vllm

if TYPE_CHECKING:
    from repl_rl.models.loading import ModelFiles

_DOWN_S = 5.0
"""For how long others are asked first after a failure."""


@dataclass(eq=False)
class VLLMServerEngine:
    """Engine over vLLM servers. `row_tokens` are the most that a trajectory has with its prompt.

    Servers are checked before the first line, or by `open`. New weights pass through a folder in
    `weights_dir` (the system's folder for temporary files unless given), which must be the same
    folder for the servers. A line that has not come after `line_timeout_s` is an error.
    """

    urls: Sequence[str]
    _: KW_ONLY
    newline_ids: Set[int]
    eos_ids: Set[int]
    vocabulary: int
    row_tokens: int
    temperature: float = 1.0
    forbidden_ids: Set[int] = frozenset()
    weights_dir: str | Path | None = None
    line_timeout_s: float = 300.0
    open_transfer: Callable[..., Transfer] | None = None
    label: str = field(default="", init=False)
    """Label of the engine, as in `SharedEngine.label`."""
    about: str = field(default="", init=False)
    """The way that an adapter takes to the servers, as in `SelfDescribing.about`."""
    num_sampled: int = field(default=0, init=False)
    """Tokens of lines that ended."""

    def __post_init__(self) -> None:
        check_settings(self.urls, temperature=self.temperature)
        self._stop_ids = self.newline_ids | self.eos_ids
        self._transfers: dict[str, Transfer] = {}
        """Ways through memory, by the addresses of servers."""
        self._folder: Path | None = None
        self._params = {
            "temperature": self.temperature,
            "stop_token_ids": sorted(self._stop_ids),
            "logit_bias": logit_bias(self.forbidden_ids),
            "ignore_eos": True,
            "logprobs": 0,  # the sampled token's alone
            "detokenize": False,
            "skip_clone": True,
        }
        self._client = _client()
        self._replicas = [Replica(url, self._client) for url in self.urls]
        self._homes = _Homes()
        self._run = secrets.token_hex(4)
        self._adapters = Adapters(self._replicas, self._run)
        self._requests = Requests()
        self._gate = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Check every server, once. ConfigError for one that cannot be used."""
        async with self._gate:
            if not self._is_open:
                vocabulary, row_tokens = self.vocabulary, self.row_tokens
                check = partial(Replica.check, vocabulary=vocabulary, row_tokens=row_tokens)
                await run_all(check, self._replicas)
                self._is_open = True

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Sample a line: see `Engine.line`."""
        check_request(ids, max_tokens, vocabulary=self.vocabulary, context_tokens=self.row_tokens)
        return await self._requests.run(self._line(list(ids), max_tokens, seed))

    async def sync(self, weights: Weights, *, version: int) -> None:
        """Send weights to the servers; lines in flight go on with them: see `Engine.sync`.

        Where an adapter goes alone, lines in flight keep the one that they began with.
        """
        await self._requests.run(self._sync(weights, version))

    async def adopt(self, label: str, *, version: int) -> None:
        """Follow weights that another process has sent: see `SharedEngine.adopt`."""
        await self._requests.run(self._adopt(label, version))

    async def sleep(self) -> None:
        """Keep the servers' memory, which is not the trainer's to take: see `Engine.sleep`.

        A phase of sampling has ended: EngineError if a server has got weights from somebody else.
        """
        await self._requests.ended()
        if self._is_open:
            await self._requests.run(self._confirm())

    async def _confirm(self) -> None:
        """EngineError if lines may have been sampled from other weights than those sent last."""
        await run_all(lambda one: persist(one.confirm), self._replicas)

    async def aclose(self) -> None:
        """Cancel the requests; the servers go on: see `Engine.aclose`."""
        await self._requests.close()
        await self._adapters.drop_all()
        await self._client.aclose()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # Lines

    async def _line(self, ids: list[int], max_tokens: int, seed: int) -> SampledLine:
        params = {**self._params, "max_tokens": max_tokens, "seed": seed}
        failed: list[Replica] = []
        try:
            async with asyncio.timeout(self.line_timeout_s):
                await self.open()
                return await persist(lambda: self._try(ids, params, failed))
        except TimeoutError:
            names = ", ".join(replica.url for replica in self._replicas)
            raise EngineError(
                f"no line from {names} in {self.line_timeout_s:g} s; see the server's log"
            ) from None

    async def _try(
        self, ids: list[int], params: dict[str, Any], failed: list[Replica]
    ) -> SampledLine:
        """One try; the replica that it fails at joins `failed`."""
        replica = self._choose(ids, failed)
        try:
            # Half: if a server hangs, there is time to ask another.
            sampled, version = await replica.sample(ids, params, timeout_s=self.line_timeout_s / 2)
            self._check_sampled(sampled, params["max_tokens"])
        except Unavailable as error:
            failed.append(replica)
            replica.down_until = time.monotonic() + _DOWN_S
            raise Unavailable(f"{replica.url} does not sample: {error}") from None
        line_ids, logprobs = sampled
        self._homes.note([*ids, *line_ids], replica)
        self.num_sampled += len(line_ids)
        end = line_end(line_ids[-1], newline_ids=self.newline_ids, eos_ids=self.eos_ids)
        return SampledLine(ids=line_ids, logprobs=logprobs, end=end, policy_version=version)

    def _choose(self, ids: list[int], failed: list[Replica]) -> Replica:
        """The one that has sampled the trajectory's last line, or the least busy."""
        now = time.monotonic()
        others = [one for one in self._replicas if one not in failed] or self._replicas
        up = [one for one in others if one.down_until <= now] or others
        home = self._homes.find(ids) if len(up) > 1 else None
        if home in up:
            return home
        return min(up, key=lambda one: (one.num_in_flight, one.num_lines))

    def _check_sampled(self, sampled: Sampled, max_tokens: int) -> None:
        """Unavailable unless this is exactly one whole line."""
        ids, logprobs = sampled
        fault = fault_of_line(
            ids, logprobs, vocabulary=self.vocabulary, forbidden=self.forbidden_ids
        )
        if fault is not None:
            raise Unavailable(fault)
        is_whole = ids[-1] in self._stop_ids or len(ids) == max_tokens
        if not is_whole or len(ids) > max_tokens or not self._stop_ids.isdisjoint(ids[:-1]):
            raise Unavailable(f"{len(ids)} of {max_tokens} tokens are no line: {ids[-8:]}")

    # Weights

    async def _sync(self, weights: Weights, version: int) -> None:
        await self.open()
        if self._folder is None:
            self._folder = _make_folder(self.weights_dir)
        if isinstance(weights, AdaptedWeights):
            sent = await self._adapters.send(weights, self._folder, version=version)
            self.about = self._adapters.about
            if sent is not None:
                self.label = str(sent)
                return
        self.label = label = f"{self._run}-{version}"

        async def give(replica: Replica, load: Callable[[], Awaitable[None]]) -> None:
            await persist(partial(replica.update, load, version=version, label=label))

        if self.open_transfer is not None:
            for one in self._replicas:  # one after another: each reads the trainer's memory
                await give(one, partial(self._send, self.open_transfer, one, weights))
            return
        path = self._folder / f"{label}.safetensors"
        try:
            await asyncio.to_thread(_write, weights, path)
            await run_all(lambda one: give(one, partial(one.load, path)), self._replicas)
        finally:
            path.unlink(missing_ok=True)

    async def _send(
        self, open_transfer: Callable[..., Transfer], replica: Replica, weights: Weights
    ) -> None:
        """Give a server, which is paused, weights through memory."""
        if replica.url not in self._transfers:
            num_workers = await replica.num_workers()
            self._transfers[replica.url] = open_transfer(replica.url, num_workers=num_workers)
        await self._transfers[replica.url].send(weights)

    async def _adopt(self, label: str, version: int) -> None:
        await self.open()
        self.label = label
        for replica in self._replicas:
            replica.adopt(label, version=version)
        await self._confirm()


class VLLMServer(EngineKind):
    """vLLM servers, to which weights are sent."""

    name = "vllm-server"
    most_forbidden = MOST_FORBIDDEN
    is_client = True

    def check(self, config: Config) -> None:
        check_model(self, config)
        check_settings(config.sampling.servers, temperature=config.sampling.temperature)
        if config.sampling.weights == "nccl" and importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "sampling.weights = 'nccl' needs vLLM in the trainer's environment, too, but it is "
                f"not installed: {how_to_get_vllm()}; or give 'file'"
            )

    def about(self, config: Config) -> str:
        return ", ".join(config.sampling.servers)

    def reach(self, config: Config) -> None:
        """ConfigError for a server that is not there, or does not see where weights will be."""
        asyncio.run(_reach(config.sampling))

    def open(self, config: Config, loaded: ModelFiles, *, row_tokens: int) -> Engine:
        open_transfer, model = None, getattr(loaded, "model", None)  # workers send nothing
        if config.sampling.weights == "nccl" and model is not None:
            if model.device.type != "cuda":
                raise ConfigError(
                    "sampling.weights = 'nccl' sends weights from a GPU, and the model is on the "
                    "CPU; give sampling.weights = 'file'"
                )
            # Three phases within what an engine may take for weights.
            limit_s = config.sampling.engine_timeout_s / 3
            open_transfer = partial(Transfer, device=model.device, limit_s=limit_s)
        return VLLMServerEngine(
            config.sampling.servers,
            **common_options(config, loaded, row_tokens),
            vocabulary=loaded.vocabulary,
            weights_dir=config.sampling.weights_dir,
            line_timeout_s=config.sampling.engine_timeout_s,
            open_transfer=open_transfer,
        )


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        # Keep none open: servers close idle connections, and a request sent just then is lost.
        limits=httpx.Limits(max_keepalive_connections=0),
        trust_env=False,  # no proxy stands between a trainer and its servers
    )


async def _reach(sampling: SamplingConfig) -> None:
    folder = _make_folder(sampling.weights_dir)
    try:
        (folder / "seen").touch()
        async with _client() as client:
            replicas = [Replica(url, client) for url in sampling.servers]
            look = partial(Replica.check_sees, path=folder / "seen")
            await run_all(look, replicas)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_folder(inside: str | Path | None) -> Path:
    """A folder for weights; inside a given one, servers of other users can read it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="repl-rl-weights-", dir=inside)).resolve()
        if inside is not None:
            folder.chmod(0o755)
    except OSError as error:
        raise ConfigError(f"cannot write weights to {inside}: {error.strerror}") from None
    return folder


def _write(weights: Weights, path: Path) -> None:
    """StorageError where the disk refuses."""
    from safetensors.torch import save_file  # torch: this module is loaded where a plan is made

    # On the CPU one after another: merged ones are copies, for which a GPU may have no room.
    with explained(path):
        save_file({name: one.detach().cpu().contiguous() for name, one in weights}, path)


class _Homes:
    """Table of the replicas that hold trajectories' keys and values, found by their tokens.

    A request begins with all tokens of the line before; the hash of those is looked up.
    """

    def __init__(self, *, capacity: int = 1 << 14) -> None:
        self._capacity = capacity
        self._by_hash: OrderedDict[int, Replica] = OrderedDict()

    def find(self, ids: Sequence[int]) -> Replica | None:
        """The replica of the longest known prefix of `ids`; None if there is none."""
        hashes = list(_prefix_hashes(ids))
        return next((self._by_hash[one] for one in reversed(hashes) if one in self._by_hash), None)

    def note(self, ids: Sequence[int], replica: Replica) -> None:
        """`ids` end in a line that `replica` has sampled."""
        *_, last = _prefix_hashes(ids)
        self._by_hash[last] = replica
        self._by_hash.move_to_end(last)
        if len(self._by_hash) > self._capacity:
            self._by_hash.popitem(last=False)


def _prefix_hashes(ids: Sequence[int]) -> accumulate[int]:
    """A hash of every prefix of `ids`, the shortest first."""
    return accumulate(ids, lambda before, token: hash((before, token)), initial=0)
