"""Clients of tinker that answer in this process, in tinker's own types. Needs tinker.

Knows what a service keeps to: it writes token for token, up to a stop id or `max_tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import tinker
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture

from repl_rl.engines.scripted import Writer
from repl_rl.transcript.tokens import Codec


def response(ids: Sequence[int], logprobs: Sequence[float] | None) -> tinker.SampleResponse:
    """One sequence, as it comes off the wire."""
    sequence = tinker.SampledSequence(
        stop_reason="stop",
        sequence_id="0",
        tokens_np=np.asarray(ids, dtype=np.int32),
        logprobs_np=None if logprobs is None else np.asarray(logprobs, dtype=np.float32),
    )
    return tinker.SampleResponse(sequences=[sequence])


def come(result: Any) -> AwaitableConcurrentFuture[Any]:
    """A future of the SDK that is done; it raises an exception that it is given."""
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return AwaitableConcurrentFuture(future)


class AnsweringClient:
    """As `tinker.SamplingClient`, with the answer that a test gives; requests go over JSON."""

    def __init__(self, answer: Callable[[tinker.SampleRequest], Any]) -> None:
        self._answer = answer
        self.asked: list[tinker.SampleRequest] = []

    def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> AwaitableConcurrentFuture[tinker.SampleResponse]:
        sent = tinker.SampleRequest(
            prompt=prompt, num_samples=num_samples, sampling_params=sampling_params
        )
        self.asked.append(tinker.SampleRequest.model_validate_json(sent.model_dump_json()))
        return come(self._answer(self.asked[-1]))


class ScriptedClient(AnsweringClient):
    """One trajectory's client: writes what a script says, with one log-probability for each token.

    What is written and not sent, behind a stop id or `max_tokens`, is lost.
    """

    def __init__(self, codec: Codec, write: Writer, *, logprob: float = 0.0) -> None:
        super().__init__(self._continue)
        self._codec, self._write, self._logprob = codec, write, logprob
        self._num_seen = 0

    def _continue(self, request: tinker.SampleRequest) -> tinker.SampleResponse:
        ids, params = request.prompt.to_ints(), request.sampling_params
        written = self._codec.encode(self._write(self._codec.decode(ids[self._num_seen :])))
        written += [min(self._codec.eos_ids)] * params.max_tokens  # it would go on for ever
        stop = next((at for at, one in enumerate(written) if one in params.stop), len(written))
        sent = written[: min(stop + 1, params.max_tokens)]
        self._num_seen = len(ids) + len(sent)
        return response(sent, [self._logprob] * len(sent))
