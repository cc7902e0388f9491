"""One `vllm serve` process over HTTP: what it is, a line from it, new weights or an adapter for it.

Knows addresses, statuses and JSON. Does not know other servers, retries or trajectories.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import textwrap
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from repl_rl.engines.base import NOT_FINITE, fault_of_line
from repl_rl.errors import ConfigError, EngineError

START = (
    "start it with `VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --dtype DTYPE --enable-scale-out "
    "--logprobs-mode processed_logprobs "
    "--worker-extension-cls repl_rl.engines.vllm_worker.PolicyLoader`"
)

START_FOR_ADAPTERS = (
    "to get the adapter alone, restart it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and "
    "--enable-lora --max-loras 3 --max-lora-rank RANK"
)

_GENERATE = "/inference/v1/generate"
"""Token ids in, token ids out: no text, and no defaults from the model's folder."""

_QUICK_S = 10.0
"""For requests that a server answers at once, if at all."""

_FIRST_S = 300.0
"""For a first line: a server may have to compile kernels before it."""

_CONTROL_S = 30.0
"""For requests that it answers between two steps of its lines."""

_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Between one try and the next."""

_LOAD_S = 300.0
"""For an adapter to be loaded: far more than one takes."""

_TRUST_S = 5.0
"""A server that has answered this lately cannot have been started anew since: that takes longer."""

_INITIAL = "default"
"""vLLM's label of the weights that a server has started with."""

T = TypeVar("T")

Sampled = tuple[tuple[int, ...], tuple[float, ...]]
"""Token ids [N] and the log-probability of each [N]."""


class Unavailable(Exception):
    """No usable answer; the same request may get one later, or from another server."""


class RefusedRequest(Exception):
    """An answer that says no, and would say so again."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(f"{reason} (HTTP {status})" if status else reason)
        self.status = status


class Replica:
    """Server at one address. Raises ConfigError for an invalid one."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        check_address(url)
        self.url = url.rstrip("/")
        self.version = 0
        """Version of the weights that it samples with."""
        self.num_in_flight = 0
        self.num_sampling: Counter[Path | None] = Counter()
        """Lines in flight with each adapter."""
        self.num_lines = 0
        """Lines that it has sampled."""
        self.down_until = 0.0
        """`time.monotonic()` before which others are asked first."""
        self._client = client
        self._label: str | None = _INITIAL
        """Label of the weights that it should have; None if the server gives no label."""
        self._adapter: Path | None = None
        """Folder of the adapter that lines are asked for with, under its name."""
        self._confirming = asyncio.Lock()
        """Held by who asks what weights it has, and while it gets others."""
        self._asked_at = -math.inf
        self._fault: str | None = None
        """The answer to the question that was asked then; None for the right weights."""
        self._num_failures = 0
        """Failed updates; after one nobody knows what weights it has."""

    async def check(self, *, vocabulary: int, row_tokens: int) -> None:
        """ConfigError unless it serves lines of such a model, with the log-probabilities of what
        it samples from."""
        try:
            await self._check_context(row_tokens)
            await self._check_control()
            await self._check_sampling(vocabulary)
        except Unavailable as error:
            raise ConfigError(f"no vLLM server answers at {self.url}: {error}; {START}") from None
        except RefusedRequest as error:
            raise ConfigError(
                f"the server at {self.url} refuses a request: {error}; {START}"
            ) from None

    async def _check_context(self, row_tokens: int) -> None:
        models = await self._ask("GET", "/v1/models")
        try:
            context = int(models["data"][0]["max_model_len"])
        except (LookupError, TypeError, ValueError, OverflowError):
            raise Unavailable("what answers is no vLLM server") from None
        if context < row_tokens:
            raise ConfigError(
                f"the server at {self.url} holds {context} tokens, but a trajectory with its "
                f"prompt may have {row_tokens}; start it with --max-model-len {row_tokens}"
            )

    async def _check_control(self) -> None:
        """Check that its weights can be followed; a server silent about them still samples."""
        try:
            is_paused = _value(await self._ask("GET", "/is_paused"), "is_paused")
        except RefusedRequest as error:
            if error.status != 404:
                raise
            self._label = None
            return
        if is_paused:
            raise ConfigError(
                f"the server at {self.url} is paused: it waits for weights that somebody did not "
                f"finish sending; start it again"
            )

    async def _check_sampling(self, vocabulary: int) -> None:
        """The last token of the vocabulary, if it is the only one allowed, has probability 1."""
        last, beyond = await self._logprob(vocabulary - 1), await self._logprob(vocabulary)
        if last is None or beyond is not None:
            raise ConfigError(
                f"the model that {self.url} serves does not have the {vocabulary} tokens of the "
                f"model that is trained; serve the same one"
            )
        if not abs(last) < 1e-3:
            raise ConfigError(
                f"the server at {self.url} gives log-probabilities of another distribution than "
                f"the one it samples from; {START}"
            )

    async def _logprob(self, token: int) -> float | None:
        """Log-probability of the only token allowed; None if the model does not have it."""
        params = {"max_tokens": 1, "logprobs": 0, "detokenize": False, "ignore_eos": True}
        try:
            _, logprobs = await self._generate(
                [0], {**params, "allowed_token_ids": [token]}, timeout_s=_FIRST_S
            )
        except RefusedRequest as error:
            if error.status == 404:
                raise
            return None
        if len(logprobs) != 1:
            raise Unavailable(f"it sampled {len(logprobs)} tokens where one was asked for")
        return logprobs[0]

    async def sample(
        self, ids: Sequence[int], params: Mapping[str, Any], *, timeout_s: float
    ) -> tuple[Sampled, int]:
        """Tokens after `ids`, and the version of the weights that the last of them is from.

        Waits while the server takes over whole weights; a line keeps its adapter. Raises
        Unavailable, also for weights that are not those sent last, and ConfigError for a request
        that the server refuses.
        """
        self.num_in_flight += 1
        try:
            if self._fault is not None or time.monotonic() - self._asked_at >= _TRUST_S:
                await self.confirm()
            return await self._sample(ids, params, timeout_s)
        finally:
            self.num_in_flight -= 1

    async def _sample(
        self, ids: Sequence[int], params: Mapping[str, Any], timeout_s: float
    ) -> tuple[Sampled, int]:
        num_failures, adapter, version = self._num_failures, self._adapter, self.version
        self.num_sampling[adapter] += 1
        try:
            sampled = await self._generate(ids, params, adapter=adapter, timeout_s=timeout_s)
        except RefusedRequest as error:
            if adapter is not None and error.status == 404:
                self._asked_at = -math.inf  # before the next line it is loaded again
                raise Unavailable(f"it has lost the adapter: {error}") from None
            raise ConfigError(f"the server at {self.url} refuses a line: {error}") from None
        finally:
            self.num_sampling[adapter] -= 1
        if self._num_failures != num_failures:
            raise Unavailable("only some of its weights were changed")
        self.num_lines += 1
        return sampled, self.version if adapter is None else version

    async def _generate(
        self,
        ids: Sequence[int],
        params: Mapping[str, Any],
        *,
        timeout_s: float,
        adapter: Path | None = None,
    ) -> Sampled:
        body: dict[str, Any] = {"token_ids": ids, "sampling_params": params}
        if adapter is not None:
            body["model"] = adapter.name
        return _sampled(await self._ask("POST", _GENERATE, json=body, timeout_s=timeout_s))

    async def confirm(self) -> None:
        """Give it its adapter again if it was started anew since.

        Unavailable if it has other weights than those sent last: of another run, or those that it
        starts with. Lines that wait here share an answer.
        """
        wanted_at = time.monotonic()
        async with self._confirming:
            if self._asked_at < wanted_at:
                self._asked_at, self._fault = time.monotonic(), "it did not answer"
                self._fault = await self._fault_of_weights()
            if self._fault is not None:
                raise Unavailable(self._fault)

    async def _fault_of_weights(self) -> str | None:
        try:
            await self._check_label()
            if self._adapter is not None and not await self._lists(self._adapter):
                await self._load_adapter(self._adapter)
        except (RefusedRequest, Unavailable) as error:
            return str(error)
        return None

    async def _check_label(self) -> None:
        if self._label is None:
            return
        label = _value(await self._ask("GET", "/weight_info"), "weight_version")
        if label != self._label:
            raise RefusedRequest(
                f"it has the weights {_word(label)}, not {self._label!r}: it was restarted, or "
                f"serves another run"
            )

    # Adapters

    async def take_adapter(self, folder: Path, *, version: int) -> None:
        """Have it load an adapter under its folder's name, for lines from here on.

        Lines in flight keep theirs, and the weights that it started with stay. Raises
        RefusedRequest where it cannot load it, or has other weights, and Unavailable.
        """
        self._label = self._label and _INITIAL
        try:
            await self._check_label()
            await self._load_adapter(folder)
        except Unavailable as error:
            raise Unavailable(f"{self.url} does not take the adapter: {error}") from None
        self._adapter, self.version = folder, version

    async def drop_adapter(self, folder: Path) -> None:
        """Have it forget an adapter; one that is gone is not asked."""
        with contextlib.suppress(Unavailable, RefusedRequest):
            await self._send("POST", "/v1/unload_lora_adapter", json={"lora_name": folder.name})

    async def _load_adapter(self, folder: Path) -> None:
        order = {"lora_name": folder.name, "lora_path": str(folder)}
        path = "/v1/load_lora_adapter"
        try:
            await self._send("POST", path, timeout_s=_LOAD_S, last_word=500, json=order)
        except RefusedRequest:
            # Another process of the run may have had it loaded, or an answer may be lost.
            if not await self._lists(folder):
                raise

    async def _lists(self, adapter: Path) -> bool:
        """Return whether lines can be asked for with this adapter."""
        served = _value(await self._ask("GET", "/v1/models"), "data")
        return isinstance(served, list) and any(
            isinstance(one, dict) and one.get("id") == adapter.name for one in served
        )

    # Whole weights

    async def update(
        self, load: Callable[[], Awaitable[None]], *, version: int, label: str
    ) -> None:
        """Have it sample from weights that `load` gives it; lines in flight wait, and go on.

        Raises EngineError if it cannot load them, ConfigError if it was not started for this, and
        Unavailable. Its weights are unknown then, so it samples nothing until the next update.
        """
        async with self._confirming:
            self._label, self._asked_at = label, -math.inf
            try:
                await self._take_over(load, label)
                self._adapter, self.version = None, version
            except BaseException:
                self._num_failures += 1  # before any line in flight goes on
                with contextlib.suppress(Unavailable, ConfigError):  # what came before says more
                    await self._control("/resume")
                raise
            await self._control("/resume")
            self._fault, self._asked_at = None, time.monotonic()

    def adopt(self, label: str, *, version: int) -> None:
        """Expect these weights, which another process has had it load."""
        self.version = version
        self._asked_at = -math.inf
        if "/" in label:  # the folder of an adapter
            self._adapter = Path(label)
        else:
            self._label, self._adapter = label, None

    async def _take_over(self, load: Callable[[], Awaitable[None]], label: str) -> None:
        await self._control("/pause", params={"mode": "keep"})
        # One that has failed half way must pass neither for this version nor for untouched.
        await self._control("/update_weight_version", json={"new_version": f"{label}-partial"})
        await load()
        # Pausing has done this, too. Keys and values of old weights would go unnoticed, so ask.
        if not _value(await self._control("/reset_prefix_cache"), "success"):
            raise EngineError(f"{self.url} keeps keys and values of the old weights")
        await self._control("/update_weight_version", json={"new_version": label})

    async def num_workers(self) -> int:
        """Processes that hold its weights, each a part or all of them."""
        count = _value(await self._control("/get_world_size", method="GET"), "world_size")
        if type(count) is not int or count < 1:
            raise Unavailable(f"{self.url} does not say how many workers it has")
        return count

    async def check_sees(self, path: Path) -> None:
        """ConfigError unless it is there, and finds a file where new weights will be."""
        try:
            why = await self._told("sees_policy", path)
        except Unavailable as error:
            raise ConfigError(f"{error}; {START}") from None
        if why is not None:
            raise ConfigError(
                f"the server at {self.url} does not see {str(path.parent)!r} ({why}); give "
                f"sampling.weights_dir a folder that is the same for it and for the trainer"
            )

    async def load(self, path: Path) -> None:
        """Have it load a file of whole weights, while it is paused."""
        if (why := await self._told("load_policy", path)) is not None:
            raise EngineError(f"{self.url} did not take the weights: {why}")

    async def _told(self, method: str, path: Path) -> str | None:
        """Return what a worker says that cannot do this with a file; None where all can."""
        order = {"method": method, "kwargs": {"path": str(path)}}
        try:
            # No limit: how long a load may take is the caller's to say.
            reply = await self._control("/collective_rpc", timeout_s=None, json=order)
        except Unavailable as error:
            if "not implemented" in str(error):
                raise ConfigError(
                    f"the server at {self.url} cannot load: {error}; {START}"
                ) from None
            raise
        results = _value(reply, "results")
        workers = results if isinstance(results, list) else []
        errors = [_value(worker, "error") for worker in workers]
        return next(map(_word, filter(None, errors)), None if errors else "no worker")

    async def _control(
        self,
        path: str,
        *,
        method: str = "POST",
        timeout_s: float | None = _CONTROL_S,
        **content: Any,
    ) -> Any:
        try:
            return await self._ask(method, path, timeout_s=timeout_s, **content)
        except Unavailable as error:
            raise Unavailable(f"{self.url} does not take new weights: {error}") from None
        except RefusedRequest as error:
            raise ConfigError(
                f"the server at {self.url} does not take new weights: {error}; {START}"
            ) from None

    async def _ask(self, method: str, path: str, **content: Any) -> Any:
        """Ask the server as `_send` does, and return its parsed answer."""
        response = await self._send(method, path, **content)
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise Unavailable(f"{path} answers no JSON") from None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float | None = _QUICK_S,
        last_word: int = 0,
        **content: Any,
    ) -> httpx.Response:
        """Ask the server. An answer of status 500 and more may become another, but `last_word`."""
        timeout = httpx.Timeout(_QUICK_S, read=timeout_s)
        try:
            response = await self._client.request(
                method, self.url + path, timeout=timeout, **content
            )
        except httpx.RequestError as error:
            raise Unavailable(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        status = response.status_code
        if status in (408, 429) or (status >= 500 and status != last_word):
            raise Unavailable(_reason(response))
        if status != 200 and "not JSON compliant" in response.text:
            raise Unavailable(NOT_FINITE)
        if status != 200:
            raise RefusedRequest(_reason(response), status)
        return response


async def persist(attempt: Callable[[], Awaitable[T]]) -> T:
    """The first success of several tries; EngineError with the last reason if all fail."""
    for pause_s in _PAUSES_S:
        try:
            return await attempt()
        except Unavailable:
            await asyncio.sleep(pause_s)
    try:
        return await attempt()
    except Unavailable as error:
        raise EngineError(
            f"{error}; see its log, restart it if it is gone, then start the run again"
        ) from None


def check_settings(urls: Sequence[str], *, temperature: float) -> None:
    """ConfigError for settings that no server could serve."""
    if not urls:
        raise ConfigError("the engine 'vllm-server' has no server; name some in sampling.servers")
    for url in urls:
        check_address(url)
    if not 0.01 <= temperature <= 2.0:
        raise ConfigError(f"temperature {temperature}; a vLLM server takes 0.01 to 2")


def check_address(url: str) -> None:
    """ConfigError unless `url` is the address of an HTTP server."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"server {url!r}; expected an address such as 'http://localhost:8000'")


def _reason(response: httpx.Response) -> str:
    """A server's own words about an error, in one line."""
    try:
        error = response.json()["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError, RecursionError):
        text = response.text
    return textwrap.shorten(text, 300) or response.reason_phrase


def _value(reply: Any, name: str) -> Any:
    """The value of this name; Unavailable for a reply that has none."""
    if not isinstance(reply, dict) or name not in reply:
        raise Unavailable(f"its reply has no {name!r}")
    return reply[name]


def _word(value: object) -> str:
    """A server's word in a sentence; of what is no text, the kind."""
    return repr(textwrap.shorten(value, 300)) if isinstance(value, str) else type(value).__name__


def _sampled(reply: Any) -> Sampled:
    """Ids and log-probabilities of a reply; Unavailable if they are not what was asked for."""
    try:
        (choice,) = reply["choices"]
        ids = tuple(choice["token_ids"])
        positions = choice["logprobs"]["content"]
        logprobs = tuple(position["logprob"] for position in positions)
        named = tuple(position["token"] for position in positions)
        reason = choice["finish_reason"]
    except (LookupError, TypeError, ValueError) as error:
        raise Unavailable(f"its reply is none to a line: {error!r}") from None
    if reason not in ("stop", "length"):
        raise Unavailable(f"it ended a line by {_word(reason)}")
    if (fault := fault_of_line(ids, logprobs)) is not None:
        raise Unavailable(fault)
    if not ids or named != tuple(f"token_id:{token}" for token in ids):
        raise Unavailable(f"its log-probabilities are of other tokens than {ids[:4]}")
    return ids, tuple(map(float, logprobs))
