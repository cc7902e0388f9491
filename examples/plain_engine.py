"""An engine of your own: a whole forward for each token, and nothing kept in between.

It is slow, but it is all that an engine must be. From this folder, with a model of your own:

    repl-rl train --model PATH --engine plain_engine:Plain
"""

import asyncio
import math
from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch

from repl_rl import Config, EngineError, EngineKind, SampledLine, check_request, line_end


class PlainEngine:
    """Samples from the trainer's own model, so there are never weights to take over."""

    def __init__(
        self,
        model: Any,
        *,
        newline_ids: Set[int],
        eos_ids: Set[int],
        temperature: float = 1.0,
        forbidden_ids: Set[int] = frozenset(),
    ) -> None:
        self.num_sampled = 0
        self._model, self._version = model, 0
        self._ends = {"newline_ids": newline_ids, "eos_ids": eos_ids}
        self._temperature = temperature
        self._forbidden_ids = sorted(forbidden_ids)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        generator = torch.Generator().manual_seed(seed)
        sampled: list[int] = []
        logprobs: list[float] = []
        while not sampled or (sampled[-1] not in self._stops and len(sampled) < max_tokens):
            await asyncio.sleep(0)  # other lines have their turn; a cancelled line ends here
            if self._model is None:
                raise EngineError("the engine was closed")
            shape = self._model.config.get_text_config()
            sizes = {
                "vocabulary": shape.vocab_size,
                "context_tokens": shape.max_position_embeddings,
            }
            check_request(ids, max_tokens, **sizes)
            scores = self._scores([*ids, *sampled])
            sampled.append(int(torch.multinomial(scores.exp(), 1, generator=generator)))
            logprobs.append(scores[sampled[-1]].item())
            self.num_sampled += 1
        end = line_end(sampled[-1], **self._ends)
        return SampledLine(
            ids=tuple(sampled), logprobs=tuple(logprobs), end=end, policy_version=self._version
        )

    @property
    def _stops(self) -> Set[int]:
        return self._ends["newline_ids"] | self._ends["eos_ids"]

    @torch.no_grad()
    def _scores(self, ids: list[int]) -> torch.Tensor:
        """Log-probabilities of the next token."""
        rows = torch.tensor([ids], device=self._model.device)
        logits = self._model.eval()(rows).logits[0, -1].float().cpu()
        logits[self._forbidden_ids] = -torch.inf
        return torch.log_softmax(logits / self._temperature, -1)

    async def sync(self, weights: Iterable[tuple[str, Any]], *, version: int) -> None:
        self._version = version

    async def sleep(self) -> None:
        """Nothing is kept that the trainer could use."""

    async def aclose(self) -> None:
        self._model = None


class Plain(EngineKind):
    name = "plain"
    shares_weights = True
    rows_grow = True
    most_forbidden = math.inf

    def open(self, config: Config, loaded: Any, *, row_tokens: int) -> PlainEngine:
        return PlainEngine(
            loaded.model,
            newline_ids=loaded.codec.newline_ids,
            eos_ids=loaded.codec.eos_ids,
            temperature=config.sampling.temperature,
            forbidden_ids=loaded.forbidden_ids,
        )
