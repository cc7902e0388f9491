"""vLLM itself: one engine in this process, used by one thread, in whole lines.

    add(key, ids) -> step, step, step -> Finished(key, ids, logprobs)

Knows vLLM's settings and what must be mended around it. Does not know asyncio, threads or
policies.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import random
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repl_rl.engines.base import NOT_FINITE, Weights
from repl_rl.engines.vllm_worker import take_weights
from repl_rl.errors import ConfigError, EngineError

_FOR_CPU: Mapping[str, Any] = {
    "enforce_eager": True,
    # Tokens after the last full block are computed again with every line; 128 by default.
    "block_size": 32,
    # Chunks would wind back the generator of a seeded line, which is impossible.
    "enable_chunked_prefill": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    key: str
    prompt_ids: tuple[int, ...]
    """Ids that vLLM went on after: exactly those that it was given."""
    ids: tuple[int, ...]  # [N]
    logprobs: tuple[float, ...]  # [N]


class VLLMCore:
    """Core of vLLM for one model. Raises ConfigError if vLLM cannot serve the model.

    One at a time in a process: vLLM keeps its process groups in globals.
    """

    def __init__(
        self,
        model_path: str,
        *,
        dtype: str,
        device: str,
        stop_ids: Set[int],
        num_rows: int,
        row_tokens: int,
        kept_tokens: int,
        temperature: float,
        logit_bias: Mapping[int, float] | None = None,
    ) -> None:
        self._is_cpu = device == "cpu"
        self._is_asleep = False
        self._engine: Any = None  # Any: vLLM is an extra, and mypy passes without it
        if self._is_cpu:
            # Else log-probabilities are compiled, with a C++ compiler that may not be there. The
            # environment variable for it works only before the first import of vLLM.
            torch._dynamo.config.disable = True
            # One core is the kernels': a thread that loses its core holds up all the others.
            torch.set_num_threads(max(1, torch.get_num_threads() - 1))
        try:
            with _globals_kept(self._is_cpu):
                self._vllm: Any = importlib.import_module("vllm")
                self._engine = self._open(model_path, dtype, num_rows, row_tokens, kept_tokens)
                self._params = self._sampling(stop_ids, temperature, logit_bias)
                self._try_model()
        # vLLM may raise anything for a model or a machine that it was not made for.
        except Exception as error:
            if self._engine is not None:
                self.close()
            reason = textwrap.shorten(str(error) or repr(error), 400)
            raise ConfigError(f"the engine 'vllm' cannot serve {model_path!r}: {reason}") from error
        self.vocabulary: int = self._engine.model_config.get_vocab_size()
        self.context_tokens: int = self._engine.model_config.max_model_len

    def _open(
        self, model_path: str, dtype: str, num_rows: int, row_tokens: int, kept_tokens: int
    ) -> Any:
        settings = self._vllm.EngineArgs(
            model=model_path,
            dtype=dtype,
            skip_tokenizer_init=True,
            generation_config="vllm",  # none: the request alone says what a line is drawn from
            max_num_seqs=num_rows,
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            disable_log_stats=True,
            use_tqdm_on_load=False,
            # A bound on memory that others use too; the room for keys and values is named below.
            gpu_memory_utilization=0.01,
            **(_FOR_CPU if self._is_cpu else {"enable_sleep_mode": True}),
        )
        model = settings.create_model_config()
        if model.using_transformers_backend():
            # It would change transformers' classes in this process, the trainer's model with them.
            raise NotImplementedError(f"vLLM has no code of its own for {model.architectures[0]}")
        settings.max_model_len = length = min(row_tokens, model.max_model_len)
        if self._is_cpu:
            settings.max_num_batched_tokens = max(4096, length, num_rows)
        config = settings.create_engine_config()
        config.cache_config.kv_cache_memory_bytes = kv_bytes(config, kept_tokens)
        executors = importlib.import_module("vllm.v1.executor")
        llm_engine = importlib.import_module("vllm.v1.engine.llm_engine").LLMEngine
        return llm_engine(
            vllm_config=config,
            executor_class=executors.Executor.get_class(config),
            log_stats=False,
            multiprocess_mode=False,
        )

    def _sampling(
        self, stop_ids: Set[int], temperature: float, logit_bias: Mapping[int, float] | None
    ) -> Any:
        """Parameters of all lines: checking thousands of stop ids for each is slow."""
        kinds = importlib.import_module("vllm.sampling_params").RequestOutputKind
        return self._vllm.SamplingParams(
            temperature=temperature,
            logprobs=0,  # that of the sampled token and of no other
            ignore_eos=True,
            stop_token_ids=sorted(stop_ids),
            logit_bias=logit_bias,
            detokenize=False,
            output_kind=kinds.FINAL_ONLY,
            skip_clone=True,
        )

    def _try_model(self) -> None:
        """Sample one token: only this shows whether vLLM lacks a kernel for the model."""
        self.add("trial", [0], max_tokens=1, seed=0)
        while not self.step():
            pass

    def add(self, key: str, ids: Sequence[int], *, max_tokens: int, seed: int) -> None:
        """Queue a line after `ids`, to be sampled by the steps to come.

        Raises EngineError between `sleep` and `load`.
        """
        if self._is_asleep:
            raise EngineError("a line was asked for before the weights that were to follow")
        params = copy.copy(self._params)
        params.max_tokens = max_tokens
        params.seed = seed % 2**63  # kept as a signed one of 64 bits
        self._engine.add_request(key, {"type": "token", "prompt_token_ids": list(ids)}, params)

    def abort(self, keys: Iterable[str]) -> int:
        """Forget lines in the middle; returns how many tokens were sampled for them."""
        outputs = self._engine.output_processor
        names = [name for key in keys for name in outputs.external_req_ids[key]]
        states = [outputs.request_states[name] for name in names]
        num_sampled: int = sum(state.detokenizer.num_output_tokens() for state in states)
        self._engine.abort_request(names, internal=True)
        return num_sampled

    def step(self) -> list[Finished]:
        """Sample a token for each line; returns the lines that ended."""
        # vLLM draws numbers that it does not use from the generator of the process.
        with torch.random.fork_rng(devices=[]):
            outputs = self._engine.step()
        return [_finished(output) for output in outputs if output.finished]

    def load(self, weights: Weights) -> None:
        """Take all weights and forget what was computed with others. No line may be in flight.

        Raises EngineError if some are missing, or if old keys and values would be seen.
        """
        if self._is_asleep:
            self._engine.wake_up(["weights"])
        given = ((name, tensor.detach()) for name, tensor in weights)
        self._engine.collective_rpc(take_weights, args=(given,))
        if self._is_asleep:
            self._engine.wake_up(["kv_cache"])
            self._is_asleep = False
        if not self._engine.reset_prefix_cache():
            raise EngineError("keys and values of the old weights are still in use")

    def sleep(self) -> None:
        """Give the GPU's memory back until `load`, that of the weights, too; on a CPU, nothing."""
        if not self._is_cpu and not self._is_asleep:
            # Level 1 would copy to the host what the next update replaces.
            self._engine.sleep(level=2)
            self._is_asleep = True

    def close(self) -> None:
        """Free memory, files and threads."""
        self._engine.apply_model(_forget_reloads)
        self._engine.engine_core.shutdown()
        self._engine.renderer.shutdown()
        self._engine = None


def kv_bytes(config: Any, num_tokens: int) -> int:
    """Bytes of keys and values, as vLLM lays them out for a model: those that were estimated.

    Any: vLLM's VllmConfig.
    """
    model, parallel = config.model_config, config.parallel_config
    heads = model.get_num_kv_heads(parallel) * model.get_head_size()
    return int(2 * model.get_num_layers(parallel) * heads * model.dtype.itemsize * num_tokens)


@contextlib.contextmanager
def _globals_kept(is_cpu: bool) -> Iterator[None]:
    """Put back what vLLM changes in the process while it starts: seeds, a function of torch. Its
    warnings are dropped: they are about itself.
    """
    set_num_threads = torch.set_num_threads
    devices = [] if is_cpu else [torch.cuda.current_device()]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=devices):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads = set_num_threads


def _forget_reloads(model: Any) -> None:
    """Drop vLLM's records of reloads: each refers to its layer and would keep it in memory."""
    reload = importlib.import_module("vllm.model_executor.model_loader.reload.layerwise")
    for layer in model.modules():
        reload.LAYERWISE_INFO.pop(layer, None)


def _finished(output: Any) -> Finished:
    (completion,) = output.outputs
    ids = tuple(completion.token_ids)
    logprobs = tuple(
        position[token].logprob for token, position in zip(ids, completion.logprobs, strict=True)
    )
    if not all(map(math.isfinite, logprobs)):
        raise FloatingPointError(NOT_FINITE)
    return Finished(
        key=output.request_id,
        prompt_ids=tuple(output.prompt_token_ids),
        ids=ids,
        logprobs=logprobs,
    )
