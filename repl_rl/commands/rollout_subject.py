"""A trajectory and what it is checked against: prompt, limits, its model's scores.

    Scored, codec, config, model -> Subject

Knows tokens and a model. Does not know what is right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.models import LoadedModel, logprobs
from repl_rl.engines.policy import divisor
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import (
    Prompt,
    Span,
    next_number,
    span_mask,
)
from repl_rl.transcript.tokens import Codec
from repl_rl.types import Scored, Trajectory

# P prompt tokens, T completion tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Log-probabilities of a completion by one forward over prompt and completion, nats."""

    shifted: tuple[float, ...]  # [T]
    """Token t by the logits at P+t-1, those of the token before it: what an update reads."""
    unshifted: tuple[float, ...]  # [T]
    """Token t by the logits at P+t, its own."""


def score(loaded: LoadedModel, trajectory: Trajectory, *, temperature: float) -> Scores:
    """Ask a transformers model once."""
    prompt, completion = trajectory.prompt_ids, trajectory.completion_ids
    heard: list[Any] = []
    hook = loaded.model.register_forward_hook(lambda _, __, output: heard.append(output.logits[0]))
    try:
        shifted = logprobs(loaded, [*prompt, *completion], len(prompt), temperature=temperature)
    finally:
        hook.remove()
    own = (heard[0][len(prompt) :].float() / divisor(temperature)).log_softmax(-1)
    unshifted = own[list(range(len(completion))), list(completion)].tolist()
    return Scores(shifted=tuple(shifted), unshifted=tuple(unshifted))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trajectory, and what it is checked against."""

    scored: Scored
    prompt: Prompt
    encoding: Encoding
    config: Config
    """What it was sampled and scored with."""
    context_tokens: int
    """The most tokens that the sampler allows, prompt included."""
    scores: Scores
    is_exact: bool
    """See `Precision.is_exact`."""
    num_drifted: int
    """Sampled tokens that the engine did not sample there; see `audit.Witness`."""

    @property
    def trajectory(self) -> Trajectory:
        return self.scored.trajectory

    @property
    def sampling(self) -> SamplingConfig:
        return self.config.sampling

    def ids(self, span: Span) -> tuple[int, ...]:
        return self.trajectory.completion_ids[span.start : span.stop]

    def injected(self, span: Span) -> list[int]:
        """What an injected span should hold, as ids."""
        if span.line_index < 0 and (thought := self.trajectory.thought) is not None:
            return self.encoding.after_thought(self.prompt.after, thought.source)[0]
        return self.shown[span.line_index]

    @property
    def codec(self) -> Codec:
        return self.encoding.codec

    @cached_property
    def gaps(self) -> dict[int, float]:
        """|sampler - trainer| at each sampled token, by position in the completion."""
        stored, fresh = self.trajectory.logprobs, self.scores.shifted
        return {t: abs(fresh[t] - stored[t]) for t in self.sampled}

    @cached_property
    def sampled(self) -> list[int]:
        """Positions of sampled tokens, according to the lines."""
        return [t for t, is_sampled in enumerate(span_mask(self.trajectory)) if is_sampled]

    @cached_property
    def shown(self) -> list[list[int]]:
        """What stands after each line, its observation and the next prompt, as ids. [L]"""
        number, found = self.prompt.next_number, []
        for line in self.trajectory.lines:
            kind, text = line.outcome.kind, line.outcome.observation
            shown = self.encoding.format.render_observation(text, kind, number=number)
            ids = self.trajectory.completion_ids[: line.stop]
            found.append(self.encoding.injected_ids(shown, after=ids))
            number = next_number(number, kind)
        return found
