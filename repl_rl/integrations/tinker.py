"""Sample lines with a sampling client of tinker: token ids in, token ids out.

    line(ids) -> SamplingClient.sample, stopped by token ids -> SampledLine

Carried exactly: ids, and log-probabilities in single precision. Lost: forbidden ids, since tinker
biases no token, so `sampling.run_on` must stay "allow"; and `sync`, since weights stay on tinker's
servers: training gives another client, for `use`. Knows no text, no kernel, no reward. The client
is not ours: it is neither made nor closed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import tinker

from repl_rl.engines.base import (
    Requests,
    SampledLine,
    Weights,
    check_request,
    fault_of_line,
    line_end,
)
from repl_rl.errors import ConfigError, EngineError
from repl_rl.transcript.tokens import Codec


class SamplingClient(Protocol):
    """Part of `tinker.SamplingClient` that is used here."""

    def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> Awaitable[tinker.SampleResponse]: ...


class TinkerEngine:
    """Engine for your own script, which keeps the protocol `repl_rl.Engine`.

        client = await tinker.ServiceClient().create_sampling_client(base_model=model)
        tokenizer = client.get_tokenizer()
        codec = TokenizerCodec(tokenizer, eos_ids=[tokenizer.eos_token_id])
        engine = TinkerEngine(client, codec, vocabulary=len(tokenizer), context_tokens=32768)
        sampler = rr.LineSampler(engine, codec, fmt, config.sampling, context_tokens=32768)

    `vocabulary` counts the ids that the model embeds. The same seed gives the same line as far as
    tinker's servers keep that. With a temperature other than 1, its SDK does not say which
    distribution the log-probabilities belong to.
    """

    def __init__(
        self,
        client: SamplingClient,
        codec: Codec,
        *,
        vocabulary: int,
        context_tokens: int,
        temperature: float = 1.0,
    ) -> None:
        self._client = client
        self._ends = {"newline_ids": codec.newline_ids, "eos_ids": codec.eos_ids}
        self._stop_ids = codec.newline_ids | codec.eos_ids
        self._sizes = {"vocabulary": vocabulary, "context_tokens": context_tokens}
        self._temperature = temperature
        self._version = 0
        self._requests = Requests()
        self.num_sampled = 0
        """Tokens of lines that ended."""

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        """Implement `Engine.line`. EngineError for a response that is not exactly one line."""
        check_request(ids, max_tokens, **self._sizes)
        return await self._requests.run(self._line(list(ids), max_tokens, seed))

    async def _line(self, ids: list[int], max_tokens: int, seed: int) -> SampledLine:
        version = self._version
        params = tinker.SamplingParams(
            max_tokens=max_tokens,
            seed=seed,
            temperature=self._temperature,
            stop=sorted(self._stop_ids),
        )
        try:
            response = await self._client.sample(
                prompt=tinker.ModelInput.from_ints(ids), num_samples=1, sampling_params=params
            )
        except tinker.TinkerError as error:
            raise EngineError(f"the sampling client gave no line: {error}") from error
        line = self._checked(response.sequences, max_tokens, version=version)
        self.num_sampled += len(line.ids)
        return line

    def _checked(self, sequences: Sequence[Any], most: int, *, version: int) -> SampledLine:
        """EngineError unless it is one whole line."""
        sizes = [len(one.tokens) for one in sequences]
        if len(sizes) != 1 or sizes[0] == 0:
            raise EngineError(f"the client sent sequences of {sizes} tokens; expected one with any")
        ids, logprobs = tuple(sequences[0].tokens), tuple(sequences[0].logprobs or ())
        fault = fault_of_line(ids, logprobs, vocabulary=self._sizes["vocabulary"])
        if fault is not None:
            raise EngineError(f"the client sent an invalid line: {fault}")
        behind = next((at for at, one in enumerate(ids[:-1]) if one in self._stop_ids), None)
        if behind is not None:
            raise EngineError(
                f"the client continued for {len(ids) - behind - 1} tokens behind the stop token "
                f"{ids[behind]}; it must stop at the ids in SamplingParams.stop"
            )
        if len(ids) > most or (len(ids) < most and ids[-1] not in self._stop_ids):
            raise EngineError(
                f"the client sent {len(ids)} of {most} tokens, the last of them {ids[-1]}; it must "
                f"stop at the ids in SamplingParams.stop and keep the one it meets, not at strings"
            )
        end = line_end(ids[-1], **self._ends)
        return SampledLine(ids=ids, logprobs=logprobs, end=end, policy_version=version)

    def use(self, client: SamplingClient, *, version: int) -> None:
        """Use another client for every line requested from now on.

        `version` counts the optimiser steps behind its weights.
        """
        self._client, self._version = client, version

    async def sync(self, weights: Weights, *, version: int) -> None:
        """Raises ConfigError: weights cannot be sent to tinker."""
        raise ConfigError("tinker trains its own weights; give its next client to engine.use")

    async def sleep(self) -> None:
        """Implement `Engine.sleep`: nothing is held here."""
        await self._requests.ended()

    async def aclose(self) -> None:
        """Implement `Engine.aclose`; the client stays open."""
        await self._requests.close()
